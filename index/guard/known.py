"""Names that attacks borrow: services, tools of well-known servers, tools that clients bring along, and our own.

Names are facts, collected by hand for this; a catalogue adds its own (`scan.Surroundings`).
"""

from __future__ import annotations

OWN_TOOLS = frozenset({"find_tools", "suggest_call", "invoke"})
"""Toolscout's own tools: an upstream with one of these names would be taken for Toolscout."""

_CLIENT_TOOLS_WORDS = (
    "bash str_replace_editor str_replace_based_edit_tool computer_use todowrite todoread multiedit notebookedit "
    "exitplanmode bashoutput killshell slashcommand apply_patch run_terminal_cmd codebase_search"
)
CLIENT_TOOLS = frozenset(_CLIENT_TOOLS_WORDS.split())
"""Tools that agents' own clients bring along."""

_SERVICES_WORDS = (
    "github gitlab bitbucket gitea slack discord telegram whatsapp gmail outlook google microsoft onedrive "
    "sharepoint teams notion obsidian linear jira confluence atlassian asana trello monday clickup airtable "
    "hubspot salesforce zendesk intercom stripe paypal square shopify quickbooks twilio sendgrid mailchimp resend "
    "figma canva miro dropbox postgres postgresql mysql sqlite mongodb redis supabase firebase snowflake bigquery "
    "databricks elasticsearch pinecone qdrant neo4j kubernetes docker terraform cloudflare vercel netlify heroku "
    "digitalocean grafana datadog sentry prometheus pagerduty playwright puppeteer browserbase firecrawl tavily "
    "perplexity anthropic openai claude context7 arxiv wikipedia spotify youtube twitter linkedin facebook "
    "instagram reddit zoom calendly zapier pipedream coinbase binance metamask ethereum amazon azure filesystem "
    "calendar telegram desktop commander sequential thinking duckduckgo brave exa todoist evernote signal"
)
SERVICES = frozenset(_SERVICES_WORDS.split())
"""Services that tools speak to, as one word each."""

_TOOL_NAMES = """
    read_file read_multiple_files write_file edit_file create_directory list_directory directory_tree move_file
    search_files get_file_info list_allowed_directories delete_file copy_file execute_command run_command run_shell
    create_issue list_issues get_issue update_issue search_issues add_issue_comment create_pull_request
    merge_pull_request list_pull_requests get_pull_request create_repository fork_repository search_repositories
    list_repos create_branch list_branches push_files get_file_contents create_or_update_file list_commits
    search_code git_status git_diff git_commit git_push git_add git_log git_checkout git_pull
    send_email read_email search_emails draft_email delete_email list_emails reply_to_email send_mail
    send_message post_message get_messages list_messages slack_post_message slack_list_channels send_sms
    create_event list_events update_event delete_event list_calendars
    brave_web_search brave_local_search web_search tavily_search search_web fetch_url web_fetch firecrawl_scrape
    execute_query run_query execute_sql list_tables describe_table read_query write_query
    browser_navigate browser_click browser_snapshot puppeteer_navigate puppeteer_screenshot
    create_page update_page search_pages notion_search create_task update_task list_tasks
    create_entities create_relations add_observations search_nodes read_graph sequentialthinking
    transfer_money send_payment make_payment create_payment list_charges create_charge transfer_funds
    send_transaction get_balance resolve_library_id get_library_docs get_current_time convert_time
    upload_file download_file create_document delete_repository send_whatsapp_message
"""
TOOLS = frozenset(_TOOL_NAMES.split())
"""Tools of well-known servers, by name."""

_HONEST = (
    "openapi stripes stripped stripper striped googled googles notions slacker slacks linears lineal zooms teens "
    "terms teems squares squared signals signaled tello trellis redial context contexts content contents discards "
    "discord commanders command commanded commands calendars cloud thinkings branded brace grave graves "
    "braves amazons google's mysqli figment firebases postgrest postgresql postgres mongo mongod elastic "
    "paypals exact exam monda mondays todolist github gitlab outlooks resent present reset desktops pine cone "
    "azures airtables canvas canvass mira mirror telegrams reddits youtubes facebooks docker "
    "dockers rocker locker databrick ethereal"
)
HONEST_WORDS = frozenset(_HONEST.split())
"""Words one letter away from a service's name that mean something themselves."""
