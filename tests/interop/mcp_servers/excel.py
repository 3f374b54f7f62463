"""excel-mcp-server: the tools that make, read, change and draw workbooks."""

from __future__ import annotations

import base64
from io import BytesIO
from pathlib import Path
from typing import Any, cast
from zipfile import ZipFile

from .filesystem import PIXEL
from .server import McpServer, script
from .step import Step, without

NAME = "excel-mcp-server"
ROWS: list[list[Any]] = [
    ["Region", "Month", "Units", "Price"],
    ["North", "Jan", 10, 2.5],
    ["South", "Jan", 20, 2.5],
    ["North", "Feb", 30, 3],
    ["South", "Feb", 5, True],
    ["South", "Feb", 5, True],
]
saved = without(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ?")
made_now = without(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ?", r"\{[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}\}")


def files_inside(value: Any) -> Any:
    """What is in a workbook: its bytes hold the time at which it was saved, and ids made at random."""
    if not isinstance(value, bytes):
        return value
    with ZipFile(BytesIO(value)) as archive:
        return {name: made_now(archive.read(name)) for name in sorted(archive.namelist())}


def prepare(here: Path) -> None:
    (here / "in.csv").write_text("name,amount\nnaïve,1\n=1+1,2.5\n")
    (here / "pixel.png").write_bytes(PIXEL)


def steps(here: Path) -> list[Step]:
    book = {"path": str(here / "book.xlsx")}
    data = {**book, "sheet": "Data"}
    return [
        Step("create_workbook", {**book, "sheets": ["Data", "Other"]}),
        Step("create_workbook", book),
        Step("list_workbooks", {"directory": str(here)}, without_sizes),
        Step("write_range", {**data, "at": "A1", "rows": ROWS, "links": [{"cell": "A2", "target": "#Other!A1"}]}),
        Step("write_range", {**data, "at": "F1", "rows": [["Sum"], ["=SUM(C2:C6)"], [None]]}),
        Step("read_range", data),
        Step("read_range", {**data, "range": "F1:F2", "mode": "formulas"}),
        Step("read_range", {**data, "sheet": "Nowhere"}),
        Step("find_cells", {**book, "query": "north"}),
        Step("replace_cells", {**book, "query": "South", "replacement": "West", "exact": True}),
        Step("copy_range", {**data, "range": "A1:D6", "at": "A1", "to_sheet": "Other", "paste": "values"}),
        Step("sort_range", {**book, "sheet": "Other", "range": "A1:D6", "sort_by": [{"column": "Units"}]}),
        Step(
            "transform_range",
            {**book, "sheet": "Other", "range": "A1:D6", "transform": {"operation": "remove_duplicates"}},
        ),
        Step("clear_range", {**book, "sheet": "Other", "range": "D2:D3", "clear": "all"}),
        Step("trace_formula", {**data, "range": "F2", "direction": "precedents"}),
        Step("goal_seek", {**data, "cell": "F2", "target": 100, "changing_cell": "C2"}),
        Step("format_range", {**data, "range": "A1:D1", "style": {"bold": True, "font_size": 12.5}}),
        Step("merge_cells", {**book, "sheet": "Other", "range": "G1:H2"}),
        Step("set_sheet_layout", {**data, "layout": {"freeze_panes": "A2", "column_widths_chars": {"A": 20}}}),
        Step(
            "add_conditional_format",
            {**data, "range": "C2:C6", "rule": {"type": "data_bar", "colors": ["#1F4E78"]}},
        ),
        Step(
            "add_data_validation",
            {**data, "range": "B2:B6", "rule": {"type": "list", "options": ["Jan", "Feb"]}},
        ),
        Step("set_table", {**book, "sheet": "Other", "range": "A1:D5", "name": "Sales"}),
        Step("create_chart", {**data, "chart_type": "column", "at": "H2", "source": "B1:C6", "name": "Units"}),
        Step("describe_sheet", data),
        Step("delete_chart", {**data, "name": "Units"}),
        Step("add_sparklines", {**data, "range": "G2:G6", "source": "Data!C2:D6"}),
        Step("delete_sparklines", {**data, "range": "G2:G6"}),
        Step("create_sheet", {**book, "new_name": "Pivot"}),
        Step(
            "create_pivot_table",
            {
                **book,
                "sheet": "Pivot",
                "at": "A3",
                "source": "Data!A1:D6",
                "row_fields": ["Region"],
                "value_fields": [{"field": "Units"}],
                "name": "ByRegion",
            },
        ),
        Step(
            "add_slicer",
            {
                **book,
                "sheet": "Pivot",
                "target": {"sheet": "Pivot", "name": "ByRegion"},
                "field": "Region",
                "at": "F3",
                "name": "Regions",
            },
        ),
        Step("delete_slicer", {**book, "sheet": "Pivot", "name": "Regions"}),
        Step("delete_pivot_table", {**book, "sheet": "Pivot", "name": "ByRegion"}),
        Step("delete_pivot_table", {**book, "sheet": "Pivot", "name": "ByRegion"}),
        Step("set_defined_name", {**book, "name": "TaxRate", "refers_to": "0.075"}),
        Step("delete_defined_name", {**book, "name": "TaxRate"}),
        Step("set_note", {**data, "cell": "A1", "text": "naïve — ☃", "author": "Ada"}),
        Step("delete_note", {**data, "cell": "A1"}),
        Step(
            "insert_image", {**data, "image_path": str(here / "pixel.png"), "at": "J1", "width_cm": 1, "name": "Pixel"}
        ),
        Step("delete_image", {**data, "name": "Pixel"}),
        Step("insert_rows_or_columns", {**data, "axis": "rows", "start": 3, "count": 2}),
        Step("delete_rows_or_columns", {**data, "axis": "rows", "start": 3}),
        Step("rename_sheet", {**book, "sheet": "Pivot", "new_name": "Empty"}),
        Step("copy_sheet", {**data, "new_name": "Copy"}),
        Step("delete_sheet", {**book, "sheet": "Empty"}),
        Step("import_csv", {**book, "csv_path": str(here / "in.csv"), "sheet": "Imported"}),
        Step("export_csv", {**data, "csv_path": str(here / "out.csv"), "delimiter": "semicolon"}),
        Step("set_workbook_settings", {**book, "settings": {"doc_properties": {"title": "naïve — ☃"}}}),
        Step("describe_workbook", book, saved),
        Step("read_vba", book),
        Step("export_workbook", book, files_inside),
        Step("import_workbook", {"path": str(here / "up.xlsx"), "content_base64": uploaded()}),
        Step("import_workbook", {"path": str(here / "no.xlsx"), "content_base64": "bm8="}),
        Step("read_range", {"path": str(here / "up.xlsx"), "sheet": "One"}),
    ]


def without_sizes(value: Any) -> Any:
    """A workbook's size depends on the time at which it was saved, by a byte or two."""
    return sorted(cast("dict[str, int]", value)) if isinstance(value, dict) else value


def uploaded() -> str:
    """The smallest workbook there is."""
    kind = "http://schemas.openxmlformats.org/"
    types = "application/vnd.openxmlformats-officedocument.spreadsheetml."
    office = f"{kind}officeDocument/2006/relationships"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{kind}package/2006/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{types}sheet.main+xml"/>'
        f'<Override PartName="/xl/sheet1.xml" ContentType="{types}worksheet+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{kind}package/2006/relationships">'
        f'<Relationship Id="r1" Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{kind}spreadsheetml/2006/main" xmlns:r="{office}">'
        '<sheets><sheet name="One" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{kind}package/2006/relationships">'
        f'<Relationship Id="r1" Type="{office}/worksheet" Target="sheet1.xml"/></Relationships>',
        "xl/sheet1.xml": f'<worksheet xmlns="{kind}spreadsheetml/2006/main"><sheetData/></worksheet>',
    }
    file = BytesIO()
    with ZipFile(file, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return base64.b64encode(file.getvalue()).decode()


def env(here: Path) -> dict[str, str]:
    return {"EXCEL_FILES_PATH": str(here)}


SERVER = McpServer(NAME, NAME, lambda here: [script(NAME, NAME), "stdio"], steps, prepare, env)
