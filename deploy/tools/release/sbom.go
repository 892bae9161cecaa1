// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/imagetar"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// created is in every bill of materials: a date would make two builds differ.
const created = "1970-01-01T00:00:00Z"

const noAssertion = "NOASSERTION"

// materials writes a bill of materials in SPDX's format: what Go has recorded in the binaries themselves, and the images with their programs.
func (o *Options) materials(targets []target, bins map[target]string, images map[string][]*imagetar.Image, files string) error {
	doc := &v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: "fairlead-" + o.Version,
		DocumentNamespace: "https://github.com/fairlead-dev/fairlead/releases/" + o.Version + "/sbom",
		CreationInfo:      &v2_3.CreationInfo{Created: created, Creators: []common.Creator{{CreatorType: "Tool", Creator: "fairlead-release"}}},
	}
	modules := map[string]bool{}
	for _, t := range targets {
		entries, err := os.ReadDir(bins[t])
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := addProgram(doc, modules, t, filepath.Join(bins[t], e.Name()), o.Version); err != nil {
				return err
			}
		}
	}
	for _, file := range slices.Sorted(maps.Keys(images)) {
		for _, img := range images[file] {
			addImage(doc, file, img)
		}
	}
	file, err := os.Create(filepath.Join(files, "fairlead-"+o.Version+".spdx.json"))
	if err != nil {
		return err
	}
	return errors.Join(spdxjson.Write(doc, file, spdxjson.Indent("  ")), file.Close())
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func id(parts ...string) common.ElementID {
	text := "Package"
	for _, p := range parts {
		text += "-" + notInID.ReplaceAllString(p, "-")
	}
	return common.ElementID(text)
}

// addProgram adds a binary and the modules that are in it.
func addProgram(doc *v2_3.Document, modules map[string]bool, t target, path, version string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	sum, err := sumOf(path)
	if err != nil {
		return err
	}
	name := filepath.Base(path)
	program := id(name, t.String())
	doc.Packages = append(doc.Packages, &v2_3.Package{
		PackageName: name, PackageSPDXIdentifier: program, PackageVersion: version, PackageFileName: t.String() + "/" + name,
		PackageDownloadLocation: noAssertion, PackageLicenseConcluded: noAssertion, PackageLicenseDeclared: "Apache-2.0", PackageCopyrightText: noAssertion,
		PackageChecksums: []common.Checksum{{Algorithm: common.SHA256, Value: sum}},
	})
	relate(doc, "DOCUMENT", "DESCRIBES", program)
	deps := []struct{ path, version string }{{"std", info.GoVersion}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		deps = append(deps, struct{ path, version string }{m.Path, m.Version})
	}
	for _, d := range deps {
		module := id("go", d.path, d.version)
		if !modules[string(module)] {
			modules[string(module)] = true
			doc.Packages = append(doc.Packages, modulePackage(module, d.path, d.version))
		}
		relate(doc, program, "CONTAINS", module)
	}
	return nil
}

// addImage adds an image of one architecture and the programs in it. Its checksum is that of its manifest, which names it after an @.
func addImage(doc *v2_3.Document, file string, img *imagetar.Image) {
	name, tag, _ := strings.Cut(img.ShortName(), ":")
	image := id("image", name, img.Architecture())
	doc.Packages = append(doc.Packages, &v2_3.Package{
		PackageName: name, PackageSPDXIdentifier: image, PackageVersion: tag, PackageFileName: file, PrimaryPackagePurpose: "CONTAINER",
		PackageDownloadLocation: noAssertion, PackageLicenseConcluded: noAssertion, PackageLicenseDeclared: "Apache-2.0", PackageCopyrightText: noAssertion,
		PackageChecksums: []common.Checksum{{Algorithm: common.SHA256, Value: strings.TrimPrefix(img.Digest(), "sha256:")}},
		PackageExternalReferences: []*v2_3.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL,
			Locator: "pkg:oci/" + filepath.Base(name) + "@" + url.QueryEscape(img.Digest()) + "?arch=" + img.Architecture() + "&tag=" + tag,
		}},
	})
	relate(doc, "DOCUMENT", "DESCRIBES", image)
	for _, source := range img.Sources() {
		program := id(filepath.Base(source), target{"linux", img.Architecture()}.String())
		if slices.ContainsFunc(doc.Packages, func(p *v2_3.Package) bool { return p.PackageSPDXIdentifier == program }) {
			relate(doc, image, "CONTAINS", program)
		}
	}
}

func modulePackage(element common.ElementID, path, version string) *v2_3.Package {
	return &v2_3.Package{
		PackageName: path, PackageSPDXIdentifier: element, PackageVersion: version,
		PackageDownloadLocation: noAssertion, PackageLicenseConcluded: noAssertion, PackageLicenseDeclared: noAssertion, PackageCopyrightText: noAssertion,
		PackageExternalReferences: []*v2_3.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: "pkg:golang/" + path + "@" + version,
		}},
	}
}

func relate(doc *v2_3.Document, from common.ElementID, how string, to common.ElementID) {
	r := &v2_3.Relationship{RefA: common.MakeDocElementID("", string(from)), Relationship: how, RefB: common.MakeDocElementID("", string(to))}
	if !slices.ContainsFunc(doc.Relationships, func(have *v2_3.Relationship) bool { return *have == *r }) {
		doc.Relationships = append(doc.Relationships, r)
	}
}
