# Lines "CASE NAME ROUND VALUE" in; for each case and name out: median value, median of the ratios to the peer within the
# rounds with the least and the greatest, and whether the bar is met.  Variables: peer (name compared with), bar (least ratio, for the name `ours`).
function median(list, n, i, j, t) {
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
    return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
}
{
    if (!(($1, $2) in rounds)) order[++cases] = $1 SUBSEP $2
    rounds[$1, $2]++
    at[$1, $2, $3] = $4
    if ($3 > last) last = $3
}
END {
    for (c = 1; c <= cases; c++) {
        split(order[c], part, SUBSEP)
        n = m = 0
        for (r = 1; r <= last; r++)
            if ((part[1], part[2], r) in at) {
                value[++n] = at[part[1], part[2], r]
                base = at[part[1], peer, r]
                if (base > 0) ratio[++m] = at[part[1], part[2], r] / base
            }
        q = m ? median(ratio, m) : 0
        # `median` has sorted them.
        spread = m > 1 ? sprintf(" [%.2f, %.2f]", ratio[1], ratio[m]) : ""
        verdict = part[2] != "ours" ? "" : (q >= bar ? "met" : "MISSED") " (bar " bar ")"
        printf "%-22s %-16s %9d/s  ratio %5.2f%-14s  %s\n", part[1], part[2], median(value, n), q, spread, verdict
    }
}
