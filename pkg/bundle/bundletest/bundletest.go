// SPDX-License-Identifier: Apache-2.0

// Package bundletest writes bundles for tests: [File] makes the file of a spec.
package bundletest

import (
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
)

// Header is what a file says before its spec.
const Header = "apiVersion: " + bundle.APIVersion + "\nkind: " + bundle.Kind + "\nmetadata: {name: " + bundle.ObjectName + "}\n"

// OldHeader is Header in the deprecated version.
const OldHeader = "apiVersion: " + bundle.DeprecatedVersion + "\nkind: " + bundle.Kind + "\nmetadata: {name: " + bundle.ObjectName + "}\n"

// File returns the file whose spec is the YAML in spec, and an empty file for none.
func File(spec string) string { return file(Header, spec) }

// Old is File in the deprecated version, whose fields are those of package v1alpha1.
func Old(spec string) string { return file(OldHeader, spec) }

func file(header, spec string) string {
	spec = strings.TrimSpace(spec)
	if spec == "" {
		return ""
	}
	return header + "spec:\n  " + strings.ReplaceAll(spec, "\n", "\n  ") + "\n"
}
