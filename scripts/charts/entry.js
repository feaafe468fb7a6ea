// The parts of ECharts that the reports use. Everything that is not named here stays out of the bundle.
// getInstanceByDom is for the test that hovers.
export { getInstanceByDom, init, use } from "echarts/core";
import { use } from "echarts/core";
import { BarChart, HeatmapChart, LineChart, ScatterChart } from "echarts/charts";
import { AriaComponent, DataZoomComponent, GridComponent, LegendComponent, TooltipComponent, VisualMapComponent } from "echarts/components";
import { CanvasRenderer, SVGRenderer } from "echarts/renderers";

use([
  BarChart, HeatmapChart, LineChart, ScatterChart,
  AriaComponent, DataZoomComponent, GridComponent, LegendComponent, TooltipComponent, VisualMapComponent,
  CanvasRenderer, SVGRenderer,
]);
