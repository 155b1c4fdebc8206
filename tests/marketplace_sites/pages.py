"""The five marketplaces that are read by their pages."""

from __future__ import annotations

import json

from marketplace_sites.base import GONE, Listed, LocalSite, Reply, as_json, document, text


class McpSoSite(LocalSite):
    """Numbered pages; a server's page has tabs that are links (``?tab=config``), as MCP.so's."""

    per_page = 5

    def page(self, path: str, query: dict[str, str], headers: dict[str, str]) -> Reply:
        if path == "/servers":
            return self.list(int(query.get("page", "1")))
        server = self.by_slug(path.removeprefix("/server/").partition("/")[0])
        if not path.startswith("/server/") or server is None or server.status == 404:
            return GONE
        return self.entry(server, path, query.get("tab", "overview"))

    def list(self, number: int) -> Reply:
        pages = -(-len(self.servers) // self.per_page)
        shown = self.servers[(number - 1) * self.per_page : number * self.per_page]
        cards = "".join(
            f'<a href="/server/{s.slug}/acme"><h3>{text(s.name)}</h3><p>{text(s.about)}</p><span>{s.stars}</span></a>'
            for s in shown
        )
        numbers = "".join(
            f'<li><a href="/servers?page={n}"{" aria-current=page" if n == number else ""}>{n}</a></li>'
            for n in range(1, pages + 1)
        )
        following = f'<li><a href="/servers?page={number + 1}">Next</a></li>' if number < pages else ""
        tags = "".join(f'<a href="/tag/{t}">{t}</a> ' for t in ("database", "browser", "official", "search"))
        return document(
            "MCP Servers",
            f"<h1>MCP Servers</h1><div>{tags}</div><div>{cards}</div>"
            f'<nav aria-label="pagination"><ul>{numbers}{following}</ul></nav>',
        )

    def entry(self, server: Listed, path: str, tab: str) -> Reply:
        tabs = "".join(
            f'<a href="{path}?tab={key}" role="tab" aria-selected="{str(tab == key).lower()}">{name}</a>'
            for key, name in (("overview", "Overview"), ("config", "Server Config"), ("comments", "Comments"))
        )
        shown = f"<p>{text(server.about)}</p>"
        if tab == "config":
            shown = f"<pre><code>{text(server.printed())}</code></pre>" if server.config is not None else "<p>None.</p>"
        return document(
            server.name,
            f'<h1>{text(server.name)}</h1><p>{server.stars} stars</p><a href="https://github.com/acme/{server.slug}">'
            f'Visit server</a><div role="tablist">{tabs}</div><div role="tabpanel">{shown}</div>',
            server.about,
        )


class McpHubSite(LocalSite):
    """Cards come by script, more of them by a button; the configuration opens in a dialog."""

    per_page = 4

    def page(self, path: str, query: dict[str, str], headers: dict[str, str]) -> Reply:
        if path == "/mcp-servers":
            return document("Servers", "<h1>All servers</h1><div id=cards>Loading...</div><p id=more></p>", "", _HUB)
        if path == "/api/servers":
            start = int(query.get("start", "0"))
            shown = self.servers[start : start + self.per_page]
            rows = [{"name": s.name, "slug": s.slug, "about": s.about} for s in shown]
            return as_json({"rows": rows, "more": start + self.per_page < len(self.servers)})
        server = self.by_slug(path.rpartition("/")[2])
        if not path.startswith("/mcp-servers/acme/") or server is None or server.status == 404:
            return GONE
        script = f"const printed = {json.dumps(server.printed() if server.config is not None else '')};{_DIALOG}"
        return document(
            server.name,
            f"<h1>{text(server.name)}</h1><p>{text(server.about)}</p><button>Star</button>"
            '<button onclick="show()">Show config</button><button>Report</button>'
            '<div role="dialog" aria-label="Configuration" id=dialog hidden></div>',
            server.about,
            script,
        )


_HUB = """
let start = 0;
const cards = document.getElementById('cards'), more = document.getElementById('more');
async function load() {
  const page = await (await fetch('/api/servers?start=' + start)).json();
  if (start === 0) cards.textContent = '';
  for (const row of page.rows) {
    const a = document.createElement('a'), h = document.createElement('h3'), p = document.createElement('p');
    a.href = '/mcp-servers/acme/' + row.slug; h.textContent = row.name; p.textContent = row.about;
    a.append(h, p); cards.append(a);
  }
  start += page.rows.length;
  more.innerHTML = page.more ? '<button>Load more</button>' : '';
  if (page.more) more.firstChild.onclick = load;
}
setTimeout(load, 300);
"""
_DIALOG = """
function show() {
  const d = document.getElementById('dialog');
  d.hidden = false;
  d.innerHTML = '<p>Add this to your client:</p><pre></pre>';
  setTimeout(() => { d.querySelector('pre').textContent = printed; }, 200);
}
"""


class GlamaSite(LocalSite):
    """Search results sorted by stars, more by a button; the configuration within a README that is folded away."""

    per_page = 3

    def results(self, word: str) -> list[Listed]:
        """What a search finds, most stars first."""
        found = [s for s in self.servers if word.lower() in f"{s.name} {s.about}".lower()]
        return sorted(found, key=lambda s: -s.stars)

    def page(self, path: str, query: dict[str, str], headers: dict[str, str]) -> Reply:
        if path == "/mcp/servers":
            assert query.get("sort") == "github-stargazers:desc", query
            shown = self.results(query.get("query", ""))[: self.per_page]
            script = f"const word = {json.dumps(query.get('query', ''))}; {_GLAMA}"
            return document(
                "MCP servers",
                f"<h1>{len(self.results(query.get('query', '')))} MCP servers</h1><ul id=results>{self.cards(shown)}"
                '</ul><button id=more>Load More</button><a href="/mcp/servers/categories/search">Search servers</a>',
                "",
                script,
            )
        if path == "/mcp/more":
            start = int(query["start"])
            found = self.results(query.get("query", ""))
            shown = found[start : start + self.per_page]
            return as_json({"html": self.cards(shown), "more": start + self.per_page < len(found)})
        server = self.by_slug(path.rpartition("/")[2])
        if not path.startswith("/mcp/servers/acme/") or server is None or server.status == 404:
            return GONE
        spans = "".join(f"<span>{text(part)}</span>" for part in _coloured(server.printed())) if server.config else ""
        return document(
            server.name,
            f"<h1>{text(server.name)}</h1><p>{server.stars} GitHub stars</p><p>{text(server.about)}</p>"
            f'<a href="https://github.com/acme/{server.slug}">Repository</a>'
            f"<details><summary>README</summary><h2>Installation</h2><pre>{spans}</pre></details>"
            "<button onclick=\"document.querySelector('details').open = true\">Show more</button>",
            server.about,
        )

    def cards(self, servers: list[Listed]) -> str:
        """Results as list items; the link is the heading, the text stands beside it."""
        return "".join(
            f'<li><h3><a href="/mcp/servers/acme/{s.slug}">{text(s.name)}</a></h3><p>{text(s.about)}</p>'
            f"<span>{s.stars} stars</span></li>"
            for s in servers
        )


_GLAMA = """
const list = document.getElementById('results'), button = document.getElementById('more');
async function more() {
  const start = list.children.length;
  const page = await (await fetch('/mcp/more?start=' + start + '&query=' + encodeURIComponent(word))).json();
  list.insertAdjacentHTML('beforeend', page.html);
  if (!page.more) button.remove();
}
button.onclick = more;
"""


def _coloured(source: str) -> list[str]:
    """Text in pieces, as a highlighter prints it."""
    return [source[i : i + 7] for i in range(0, len(source), 7)]


class SmitherySite(LocalSite):
    """Search results over numbered pages that scripts turn; the configuration behind "Connect", then "JSON"."""

    per_page = 4

    def page(self, path: str, query: dict[str, str], headers: dict[str, str]) -> Reply:
        if path == "/servers":
            word = query.get("q", "").lower()
            found = [s for s in self.servers if word in f"{s.name} {s.about}".lower()]
            rows = [{"name": s.name, "slug": s.slug, "about": s.about} for s in found]
            script = f"const rows = {json.dumps(rows)}, size = {self.per_page};{_SMITHERY}"
            return document("Smithery", "<h1>Servers</h1><div id=cards></div><div id=pages></div>", "", script)
        server = self.by_slug(path.rpartition("/")[2])
        if not path.startswith("/server/@acme/") or server is None or server.status == 404:
            return GONE
        script = f"const printed = {json.dumps(server.printed() if server.config is not None else '')};{_CONNECT}"
        return document(
            server.name,
            f"<h1>{text(server.name)}</h1><p>{text(server.about)}</p><div role=tablist>"
            "<button role=tab aria-selected=true>Overview</button><button role=tab>Tools</button>"
            "<button role=tab>API</button></div><button onclick=connect()>Connect</button><div id=how></div>",
            server.about,
            script,
        )


_SMITHERY = """
function show(page) {
  const cards = document.getElementById('cards'), pages = document.getElementById('pages');
  cards.innerHTML = '';
  for (const row of rows.slice((page - 1) * size, page * size)) {
    const a = document.createElement('a');
    a.href = '/server/@acme/' + row.slug;
    a.innerHTML = '<h3></h3><p></p>';
    a.firstChild.textContent = row.name; a.lastChild.textContent = row.about;
    cards.append(a);
  }
  const last = Math.ceil(rows.length / size);
  pages.innerHTML = '<button>Previous</button><button>Next</button>';
  pages.firstChild.disabled = page <= 1; pages.lastChild.disabled = page >= last;
  pages.firstChild.onclick = () => show(page - 1); pages.lastChild.onclick = () => show(page + 1);
}
setTimeout(() => show(1), 100);
"""
_CONNECT = """
function connect() {
  const how = document.getElementById('how');
  how.innerHTML = '<div role=tablist><button role=tab aria-selected=true>Auto</button>' +
    '<button role=tab id=json>JSON</button><button role=tab>TypeScript</button></div><div role=tabpanel></div>';
  document.getElementById('json').onclick = () => {
    how.lastChild.innerHTML = '<textarea readonly rows=12 cols=60></textarea>';
    how.querySelector('textarea').value = printed;
  };
}
"""


class PipedreamSite(LocalSite):
    """Apps come as the page is scrolled; an app's page lists some tools, and the rest after a button."""

    per_page = 5

    def page(self, path: str, query: dict[str, str], headers: dict[str, str]) -> Reply:
        if path == "/":
            apps = [{"name": s.name, "slug": s.slug, "about": s.about} for s in self.servers]
            script = f"const apps = {json.dumps(apps)}, size = {self.per_page};{_APPS}"
            return document("MCP servers", "<h1>MCP servers for all apps</h1><div id=apps></div>", "", script)
        server = self.by_slug(path.removeprefix("/app/"))
        if not path.startswith("/app/") or server is None or server.status == 404:
            return GONE
        rows = [
            f'<li><a href="https://github.com/PipedreamHQ/pipedream/tree/master/components/{server.slug}/actions/{t}/'
            f'{t}.mjs"><strong>{text(t.replace("-", " ").title())}</strong><p>Runs {t} in {text(server.name)}.</p></a>'
            "</li>"
            for t in server.tools
        ]
        rest = "".join(rows[3:])
        button = "<button id=all>Show all tools</button>" if rest else ""
        script = f"const rest = {json.dumps(rest)};{_ALL}"
        return document(
            server.name,
            f"<h1>{text(server.name)}</h1><p>{text(server.about)}</p><button>Connect account</button>"
            f"<h2>Tools</h2><ul id=tools>{''.join(rows[:3])}</ul>{button}",
            server.about,
            script,
        )


_APPS = """
let shown = 0;
const box = document.getElementById('apps');
function add() {
  for (const app of apps.slice(shown, shown + size)) {
    const a = document.createElement('a');
    a.href = '/app/' + app.slug; a.style = 'display:block;height:400px';
    a.innerHTML = '<h3></h3><p></p>';
    a.firstChild.textContent = app.name; a.lastChild.textContent = app.about;
    box.append(a);
  }
  shown = box.children.length;
}
add();
addEventListener('scroll', () => {
  if (innerHeight + scrollY >= document.documentElement.scrollHeight - 50 && shown < apps.length) setTimeout(add, 150);
});
"""
_ALL = """
const button = document.getElementById('all');
if (button) button.onclick = () => {
  document.getElementById('tools').insertAdjacentHTML('beforeend', rest);
  button.remove();
};
"""
