// DejaVu Sans cut down to what the static pictures write. Usage: subset.js IN OUT
const fs = require("node:fs");
const subset = require("subset-font");
const ascii = Array.from({ length: 95 }, (_, i) => String.fromCharCode(32 + i)).join("");
const [, , from, to] = process.argv;
subset(fs.readFileSync(from), ascii + "äöüÄÖÜßéèàñçøåæ€£µμ·×–—…°²³±≤≥Δη½⁻¹⁰⁴⁵⁶⁷⁸⁹→←↑↓•", { targetFormat: "truetype" })
  .then((font) => fs.writeFileSync(to, font));
