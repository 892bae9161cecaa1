// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"

	"golang.org/x/tools/cover"
)

// coverage knows which code the tests reach.
type coverage struct {
	blocks map[string][]cover.ProfileBlock // by the name of the file
}

func readCoverage(profile string) (*coverage, error) {
	profiles, err := cover.ParseProfiles(profile)
	if err != nil {
		return nil, err
	}
	c := &coverage{blocks: map[string][]cover.ProfileBlock{}}
	for _, p := range profiles {
		c.blocks[filepath.Base(p.FileName)] = p.Blocks
	}
	return c, nil
}

// reaches reports whether a test may see a mutant. It is true for code without a count, such as package variables.
func (c *coverage) reaches(m *mutant) bool {
	counted := false
	for _, b := range c.blocks[filepath.Base(m.file)] {
		starts := b.StartLine < m.line || b.StartLine == m.line && b.StartCol <= m.col
		ends := b.EndLine > m.line || b.EndLine == m.line && b.EndCol > m.col
		if starts && ends {
			if b.Count > 0 {
				return true
			}
			counted = true
		}
	}
	return !counted
}
