"""Results that a notebook shows as tables."""

import html
import json

from ._native import Error

# Figures of a run that a notebook shows, with what they are called and how they are written.
FIGURES = (
    ("fast_hit_ratio", "fast hits", "{:.4f}"),
    ("fast_served_ratio", "served from fast", "{:.4f}"),
    ("elapsed_s", "elapsed, s", "{:.3f}"),
    ("throughput_iops", "requests a second", "{:.0f}"),
    ("latency_mean_s", "mean latency, ms", "{:.3f}"),
    ("latency_p99_s", "p99 latency, ms", "{:.3f}"),
    ("energy_j", "energy, J", "{:.1f}"),
    ("migrated_bytes", "moved, MB", "{:.1f}"),
)
# Figures that one device alone does not have: its only tier counts as the fastest one in its report.
_OF_NO_TIER = {"hdd-only": ("fast_hit_ratio", "fast_served_ratio"), "ssd-only": ("fast_hit_ratio",)}
_SCALE = {"latency_mean_s": 1e3, "latency_p99_s": 1e3, "migrated_bytes": 1e-6}


def figure(report, key, form):
    value = report.get(key)
    return "–" if value is None else form.format(value * _SCALE.get(key, 1))


def table(caption, head, rows):
    def cells(tag, row):
        style = ' style="text-align:left"'
        return "".join(f"<{tag}{style if i == 0 else ''}>{html.escape(str(c))}</{tag}>" for i, c in enumerate(row))

    body = "".join(f"<tr>{cells('td', r)}</tr>" for r in rows)
    return f"<table><caption>{html.escape(caption)}</caption><thead><tr>{cells('th', head)}</tr></thead><tbody>{body}</tbody></table>"


def flat(report):
    """The single figures of a report."""
    row = {}
    for k, v in report.items():
        if k == "wear_eu" and v:
            row.update({f"wear_eu_{member}": wear for member, wear in v.items()})
        elif k == "sample" and v:
            row["fast_hit_ratio_error"] = v["fast_hit_ratio_error"]
        elif not isinstance(v, (dict, list)):
            row[k] = v
    return row


def arrow(rows):
    """Rows of single figures as a ``pyarrow.Table``."""
    import pyarrow

    names = list(dict.fromkeys(name for row in rows for name in row))
    return pyarrow.table({n: [row.get(n) for row in rows] for n in names})


def frame(rows):
    """Rows of single figures as a ``pandas.DataFrame``."""
    try:
        import pandas
    except ImportError as e:
        raise Error("to_pandas: needs pandas: pip install 'isotherm[arrow]'") from e
    return pandas.DataFrame(rows)


def written(page, file):
    """The page, written to ``file`` where one is named."""
    if file is not None:
        with open(file, "w", encoding="utf-8") as f:
            f.write(page)
    return page


class Run(dict):
    """The figures of one run: a dict with the keys of ``isotherm sim --json``. Notebooks show the main ones."""

    def __init__(self, figures, page=None):
        super().__init__(figures)
        self._page = page

    def __reduce__(self):
        # The page is made of the run itself, which stays in its process.
        return (Run, (dict(self),))

    def page(self, file=None):
        """The page that ``isotherm sim --html`` writes, as a text; written to ``file`` where one is named."""
        if self._page is None:
            raise Error("page: only the process that made a run has its page: call page() there")
        return written(self._page(), file)

    def to_pandas(self):
        """The single figures as a ``pandas.DataFrame`` of one row."""
        return frame([flat(self)])

    def _repr_html_(self):
        rows = [(name, figure(self, key, form)) for key, name, form in FIGURES]
        if self.get("sample"):
            rows.insert(1, ("error of these (95 %)", f"± {self['sample']['fast_hit_ratio_error']:.4f}"))
        return table(f"{self['policy']} on {self['trace']}", ("figure", ""), rows)


class Curve(list):
    """A Run for each size of the fast tier. Notebooks show hits by size; ``table()`` is an Arrow table, ``points()`` the curve."""

    def points(self):
        """Pairs of bytes of the fast tier and miss ratio."""
        return [(run["fast_bytes"], 1 - run["fast_hit_ratio"]) for run in self]

    def table(self):
        """The single figures as a ``pyarrow.Table``: a row a size."""
        return arrow([flat(run) for run in self])

    def to_pandas(self):
        """The same as a ``pandas.DataFrame``."""
        return frame([flat(run) for run in self])

    def _repr_html_(self):
        if not self:
            return ""
        sampled = any(run.get("sample") for run in self)
        head = ["fast tier, bytes", "miss ratio", *(["± (95 %)"] if sampled else []), "elapsed, s", "mean latency, ms"]
        rows = []
        for run in self:
            error = [f"{run['sample']['fast_hit_ratio_error']:.4f}"] if sampled else []
            times = [figure(run, "elapsed_s", "{:.3f}"), figure(run, "latency_mean_s", "{:.3f}")]
            rows.append([run["fast_bytes"], f"{1 - run['fast_hit_ratio']:.4f}", *error, *times])
        return table(f"{self[0]['policy']} on {self[0]['trace']}", head, rows)


class Comparison(dict):
    """Policies side by side: a dict with the keys of ``isotherm compare --json``. Notebooks show it as a table."""

    def __init__(self, compared):
        super().__init__(json.loads(compared.json()))
        self._compared = compared

    def table(self):
        """The single figures of the rows as a ``pyarrow.Table``, with ``name``, ``kind``, ``cost_s`` and both regrets."""
        return arrow(self._rows())

    def to_pandas(self):
        """The same as a ``pandas.DataFrame``."""
        return frame(self._rows())

    def _rows(self):
        own = ("name", "kind", "cost_s", "cost_regret", "hit_regret")
        return [{**{k: row[k] for k in own}, **flat(row["report"])} for row in self["rows"]]

    def page(self, file=None):
        """The page that ``isotherm compare --html`` writes, with charts, as a text; written to ``file`` where one is named."""
        return written(self._compared.page(), file)

    def _repr_html_(self):
        head = ["policy", *(name for _, name, _ in FIGURES), "hit regret", "cost regret"]
        rows = []
        for row in self["rows"]:
            regret = [
                "–" if row["hit_regret"] is None else f"{row['hit_regret']:.4f}",
                "–" if row["cost_regret"] is None else f"{row['cost_regret']:.1%}",
            ]
            none = _OF_NO_TIER.get(row["name"], ()) if row["kind"] == "baseline" else ()
            shown = ("–" if key in none else figure(row["report"], key, form) for key, _, form in FIGURES)
            rows.append([row["name"], *shown, *regret])
        best = self["bounds"]
        rows.append(["no policy can beat", f"{best['hit_ratio']:.4f}", *["–"] * (len(head) - 2)])
        return table(f"{self['trace']}, fast tier of {self['fast_bytes']} bytes", head, rows)
