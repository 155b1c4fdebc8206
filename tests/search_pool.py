"""A small pool of servers and tools for the search tests, written for them."""

from __future__ import annotations

from typing import Any

from toolscout.records import Call, GoldCall, Server, ServerState, Tool


def _schema(**properties: Any) -> dict[str, Any]:
    """Parameters by name: a type name, or a type name and a description; a trailing ``_opt`` makes one optional."""
    fields, required = {}, []
    for name, value in properties.items():
        kind, text = value if isinstance(value, tuple) else (value, "")
        if not name.endswith("_opt"):
            required.append(name)
        fields[name.removesuffix("_opt")] = {"type": kind} | ({"description": text} if text else {})
    return {"type": "object", "properties": fields, "required": required}


_POOL: dict[str, tuple[str, str, list[tuple[str, str, dict[str, Any]]]]] = {
    "demo/time": ("Time", "Current time and time zone conversion.", [
        ("get_current_time", "Get the current time in a specific time zone.",
         _schema(timezone=("string", "IANA name"))),
        ("convert_time", "Convert a time from one time zone to another.",
         _schema(source_timezone="string", time=("string", "HH:MM"), target_timezone="string")),
    ]),
    "demo/git": ("Git", "Work with a local git repository.", [
        ("git_status", "Shows the working tree status.", _schema(repo_path="string")),
        ("git_commit", "Records changes to the repository.", _schema(repo_path="string", message="string")),
        ("git_diff_unstaged", "Shows changes in the working directory that are not yet staged.",
         _schema(repo_path="string")),
        ("git_log", "Shows the commit history.", _schema(repo_path="string", max_count_opt="integer")),
        ("git_create_branch", "Creates a new branch.", _schema(repo_path="string", branch_name="string")),
    ]),
    "demo/fetch": ("Fetch", "Fetch web pages.", [
        ("fetch", "Fetches a URL from the internet and extracts its contents as markdown.",
         _schema(url="string", max_length_opt="integer")),
    ]),
    "acme/weather": ("Weather", "Forecasts and current conditions for any place on earth.", [
        ("get_forecast", "Weather forecast for a city for up to ten days: temperature, rain and wind.",
         _schema(city="string", days_opt="integer")),
        ("get_alerts", "Active severe weather warnings of a region, such as storms and floods.",
         _schema(region="string")),
        ("air_quality", "Air pollution index with PM2.5 and ozone.", _schema(city="string")),
    ]),
    "acme/github": ("GitHub", "Repositories, issues and pull requests on GitHub.", [
        ("create_issue", "Open a new issue in a repository.",
         _schema(repo="string", title="string", body_opt="string")),
        ("list_pull_requests", "List pull requests of a repository by state.",
         _schema(repo="string", state_opt="string")),
        ("merge_pull_request", "Merge a pull request.", _schema(repo="string", number="integer")),
        ("search_code", "Search source code across repositories.", _schema(query="string")),
    ]),
    "acme/gitlab": ("GitLab", "Projects, issues and merge requests on GitLab.", [
        ("create_issue", "Create an issue in a GitLab project.", _schema(project_id="string", title="string")),
        ("list_merge_requests", "List merge requests of a project.", _schema(project_id="string")),
    ]),
    "acme/slack": ("Slack", "Team chat: channels, messages, users.", [
        ("post_message", "Send a message to a channel.", _schema(channel="string", text="string")),
        ("list_channels", "List the channels of the workspace.", _schema()),
        ("get_user_profile", "Look up a person's profile and e-mail address.", _schema(user_id="string")),
    ]),
    "acme/postgres": ("PostgreSQL", "Query a PostgreSQL database.", [
        ("run_query", "Run a read-only SQL query and return the rows.", _schema(sql="string")),
        ("describe_table", "Columns, types and indexes of a table.", _schema(table="string")),
        ("delete_rows", "Delete rows that match a condition.", _schema(table="string", where="string")),
    ]),
    "acme/pdf": ("PDF tools", "Read, convert and merge PDF files.", [
        ("pdf_to_text", "Extract the text of a PDF file.", _schema(path="string")),
        ("merge_pdfs", "Join several PDF files into one.", _schema(paths="array")),
    ]),
    "acme/currency": ("Exchange rates", "Currency conversion with daily rates of the European Central Bank.", [
        ("convert_currency", "Convert an amount of money from one currency to another.",
         _schema(amount="number", source="string", target="string")),
        ("historical_rate", "Exchange rate of two currencies on a day in the past.",
         _schema(date="string", source="string", target="string")),
    ]),
    "acme/spotify": ("Spotify", "Music playback and playlists.", [
        ("play_track", "Start playing a song.", _schema(track="string")),
        ("add_to_playlist", "Add a song to a playlist.", _schema(playlist="string", track="string")),
    ]),
    "acme/calendar": ("Kalender", "Termine und Einladungen verwalten.", [
        ("createEvent", "Legt einen neuen Termin im Kalender an.", _schema(titel="string", beginn="string")),
        ("listEvents", "Zeigt die Termine eines Tages.", _schema(datum="string")),
    ]),
    "cjk/maps": ("地图服务", "地图、路线与天气查询", [
        ("maps_weather", "查询指定城市的天气预报", _schema(city=("string", "城市名称"))),
        ("maps_route", "规划两地之间的驾车路线", _schema(origin="string", destination="string")),
    ]),
    "cjk/train": ("乗換案内", "日本の電車の時刻と運賃を調べる", [
        ("search_train", "出発駅と到着駅から電車の乗り換えを検索する", _schema(start="string", goal="string")),
        ("station_info", "駅の住所と設備を表示する", _schema(station="string")),
    ]),
    "cjk/shop": ("쇼핑 도우미", "상품 검색과 가격 비교", [
        ("search_product", "상품을 검색하고 가격을 비교합니다", _schema(keyword="string")),
        ("track_parcel", "택배 배송 상태를 조회합니다", _schema(number="string")),
    ]),
}  # fmt: skip

READ_ONLY = {"git_status", "git_log", "get_forecast", "run_query", "list_channels", "search_code"}


def servers() -> list[Server]:
    """The pool's servers, ready except ``acme/spotify``, which needs a key."""
    return [
        Server(
            server_id=server_id,
            name=name,
            description=text,
            state=ServerState.NEEDS_KEY if server_id == "acme/spotify" else ServerState.READY,
        )
        for server_id, (name, text, _) in _POOL.items()
    ]


def tools(server_id: str | None = None) -> list[Tool]:
    """The pool's tools, of one server if one is named."""
    return [
        Tool(
            tool_id=f"{owner}/{name}",
            server_id=owner,
            name=name,
            description=text,
            input_schema=schema,
            annotations={"readOnlyHint": True} if name in READ_ONLY else None,
        )
        for owner, (_, _, found) in _POOL.items()
        for name, text, schema in found
        if server_id in (None, owner)
    ]


def exemplars() -> list[Call]:
    """Two worked requests that share no word with their tool."""
    return [
        Call(
            id="x1",
            query="crank up some Abba in the living room",
            gold=[GoldCall(tool_id="acme/spotify/play_track", arguments={"track": "Waterloo"})],
        ),
        Call(
            id="x2",
            query="let the team know lunch is here",
            gold=[GoldCall(tool_id="acme/slack/post_message", arguments={"channel": "#all", "text": "Lunch!"})],
        ),
    ]
