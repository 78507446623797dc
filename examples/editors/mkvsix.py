#!/usr/bin/env python3
"""Packs an extension for VS Code: mkvsix.py DIRECTORY OUTPUT.vsix. A .vsix is a zip of the extension
and two descriptions of it. No npm is needed, since the extension has no dependencies."""

import json
import os
import sys
import zipfile
from xml.sax.saxutils import escape, quoteattr

TYPES = {".json": "application/json", ".js": "application/javascript", ".md": "text/markdown",
         ".vsixmanifest": "text/xml", ".txt": "text/plain"}  # fmt: skip


def manifest(package):
    kinds = ",".join(package.get("extensionKind", []))
    return f"""<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
  <Metadata>
    <Identity Language="en-US" Id={quoteattr(package["name"])} Version={quoteattr(package["version"])} Publisher={quoteattr(package["publisher"])}/>
    <DisplayName>{escape(package["displayName"])}</DisplayName>
    <Description>{escape(package["description"])}</Description>
    <Categories>{escape(",".join(package["categories"]))}</Categories>
    <License>extension/LICENSE.txt</License>
    <Properties>
      <Property Id="Microsoft.VisualStudio.Code.Engine" Value={quoteattr(package["engines"]["vscode"])}/>
      <Property Id="Microsoft.VisualStudio.Code.ExtensionKind" Value={quoteattr(kinds)}/>
    </Properties>
  </Metadata>
  <Installation><InstallationTarget Id="Microsoft.VisualStudio.Code"/></Installation>
  <Dependencies/>
  <Assets>
    <Asset Type="Microsoft.VisualStudio.Code.Manifest" Path="extension/package.json" Addressable="true"/>
    <Asset Type="Microsoft.VisualStudio.Services.Content.Details" Path="extension/README.md" Addressable="true"/>
  </Assets>
</PackageManifest>
"""


def content_types():
    each = "".join(f'<Default Extension="{name}" ContentType="{kind}"/>' for name, kind in TYPES.items())
    return (
        '<?xml version="1.0" encoding="utf-8"?><Types '
        f'xmlns="http://schemas.openxmlformats.org/package/2006/content-types">{each}</Types>'
    )


def main(directory, output):
    with open(os.path.join(directory, "package.json"), encoding="utf-8") as text:
        package = json.load(text)
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as packed:

        def add(name, data):
            # The same files give the same archive.
            packed.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)

        add("extension.vsixmanifest", manifest(package))
        add("[Content_Types].xml", content_types())
        for name in sorted(os.listdir(directory)):
            with open(os.path.join(directory, name), "rb") as file:
                # Only files with a known type may be in the archive.
                add("extension/" + ("LICENSE.txt" if name == "LICENSE" else name), file.read())


if __name__ == "__main__":
    main(*sys.argv[1:])
