"""The style of the card's page: for light and dark screens, for phones and for paper."""

STYLE = """
:root{color-scheme:light dark;--line:#d8dee4;--soft:#57606a;--p0:#8250df;--p1:#bf8700;--p2:#1a7f37}
@media(prefers-color-scheme:dark){:root{--line:#30363d;--soft:#9198a1;--p0:#ab7df8;--p1:#d4a72c;--p2:#3fb950}}
body{font:14px/1.45 system-ui,sans-serif;max-width:62rem;margin:1.5rem auto;padding:0 1rem}
h1{font-size:1.35rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}
.path{color:var(--soft);margin:.1rem 0 1rem;overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%;margin:.5rem 0}
th,td{text-align:left;padding:.25rem .6rem .25rem 0;border-bottom:1px solid var(--line);vertical-align:top;
overflow-wrap:anywhere}
th{font-weight:600}.facts th{width:9rem;color:var(--soft)}.facts td,.id{font-family:ui-monospace,monospace}
.numbers td,.time{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.numbers th[scope=col]{text-align:right;color:var(--soft)}
.tasks{font-size:.9em}.tasks th[scope=row]{white-space:nowrap}.wide{width:45%}.id{font-size:.85em;color:var(--soft)}
.bar{display:flex;height:.9rem;margin-top:.2rem}.bar i{display:block;min-width:1px}.own .bar{height:1.4rem}
.p0{background:var(--p0)}.p1{background:var(--p1)}.p2{background:var(--p2)}
.legend{margin:.3rem 0 1rem;color:var(--soft)}.legend span{margin-right:1rem}
.legend i,.dot{display:inline-block;width:.7rem;height:.7rem;margin-right:.35rem;border-radius:2px}
details{margin:.8rem 0}summary{cursor:pointer;font-weight:600}
ul{columns:14rem;list-style:none;padding:0;margin:.5rem 0}li{break-inside:avoid;overflow-wrap:anywhere}
li b{font-weight:400;color:var(--soft)}
@media(max-width:40rem){.tasks .id,.tasks th:nth-child(4){display:none}.facts th{width:6rem}}
@media print{i{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""
