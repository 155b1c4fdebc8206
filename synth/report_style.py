"""How the report's page looks, by day and by night."""

STYLE = """
:root{--ink:#1c2430;--soft:#566173;--line:#d9dee7;--good:#3d6fd6;--bad:#c2573a;--wait:#9aa4b5;--back:#fff;--box:#f5f7fa;
--g0:#2f6bd0;--g1:#d9730d;--g2:#1f8a5b;--g3:#b0308f;--g4:#8a6d00;--g5:#0f8fa6;--g6:#c4372f;--g7:#6a4fc4;--other:#9aa4b5;
color-scheme:light dark}
@media (prefers-color-scheme:dark){
:root{--ink:#e7eaf0;--soft:#a9b4c5;--line:#333b48;--good:#6f9bf2;--bad:#e58a6e;--wait:#5c677a;--back:#14181f;--box:#1b212b;
--g0:#7aa5f7;--g1:#f5a45c;--g2:#5fcf9c;--g3:#ea83cf;--g4:#dcc14a;--g5:#54cbe0;--g6:#f08079;--g7:#ab97f5;--other:#5c677a}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);margin:2rem auto;max-width:72rem}
body{padding:0 1rem}
h1{font-size:1.5rem;margin:0}h2{font-size:1.2rem;margin:2.8rem 0 .5rem}h3{font-size:1rem;margin:1.5rem 0 .3rem}
.soft{color:var(--soft)}.state{border-left:4px solid var(--bad);background:var(--box);padding:.5rem .8rem;margin:1rem 0}
nav{margin:.6rem 0}nav a{color:inherit;margin-right:1rem}
.figures{display:flex;flex-wrap:wrap;gap:1rem 2.5rem;margin:1.2rem 0;padding:0;list-style:none}
.figures b{display:block;font-size:1.7rem;line-height:1.2;font-variant-numeric:tabular-nums}
.figures span{color:var(--soft)}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;margin:.6rem 0 1.2rem}
caption{text-align:left;color:var(--soft);padding-bottom:.2rem}
td,th{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:right;vertical-align:top;font-weight:400}
td{font-variant-numeric:tabular-nums}thead th{color:var(--soft);white-space:nowrap}
th:first-child,.funnel td:nth-child(2),.funnel td:last-child,.funnel th:last-child{text-align:left}
.funnel td:nth-child(2){width:34%}.funnel td:last-child{width:36%}.funnel ul{margin:0;padding-left:1rem}
.bars td:nth-child(2){width:50%;text-align:left}
.bars td{white-space:nowrap}.bars th:first-child{overflow-wrap:anywhere;max-width:16rem}
.bar{display:inline-block;height:.8em;min-width:1px;border-radius:2px;vertical-align:baseline}
.good{background:var(--good);fill:var(--good)}.bad{background:var(--bad);fill:var(--bad)}
.wait{background:var(--wait);fill:var(--wait)}
.stack{display:block;white-space:nowrap;line-height:1}.key i{width:.8em!important;margin:0 .3em 0 1em}
.read{table-layout:fixed;min-width:44rem}.read td,.read th{text-align:left;overflow-wrap:anywhere}
.read.kept th:first-child{width:44%}.read.lost th:first-child{width:22%}.read.lost td:nth-child(2){width:24%}
.said{white-space:pre-wrap;unicode-bidi:isolate;display:block}
code,pre{font:12.5px/1.45 ui-monospace,monospace}pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--box)}
pre{padding:.6rem;margin:.3rem 0}.read code{display:block;color:var(--soft);white-space:pre-wrap}
.grid2{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr));gap:1rem 2rem}
.grid3{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(310px,100%),1fr));gap:1rem 1.5rem}
figure{margin:0}figcaption{font-weight:600;margin:.4rem 0}
svg{width:100%;height:auto;display:block}
svg text{fill:var(--ink);font:12px system-ui,sans-serif}svg .n{fill:var(--soft)}
.grid{stroke:var(--line)}.frame{fill:none;stroke:var(--line)}.g{fill-opacity:.75}
g:hover .g{fill-opacity:1;stroke:var(--ink)}
.g0{fill:var(--g0)}.g1{fill:var(--g1)}.g2{fill:var(--g2)}.g3{fill:var(--g3)}.g4{fill:var(--g4)}.g5{fill:var(--g5)}
.g6{fill:var(--g6)}.g7{fill:var(--g7)}.other{fill:var(--other)}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;padding:0;list-style:none}
.legend svg{width:14px;height:14px;display:inline-block;vertical-align:-2px;margin-right:.35rem}
details{margin:.6rem 0}summary{cursor:pointer}
"""
