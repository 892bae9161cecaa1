// SPDX-License-Identifier: Apache-2.0

// Package doccommands finds the commands in the documentation, for tests that compare them with programs.
package doccommands

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
)

// Pages are the pages whose commands people copy, by their paths below the repository.
func Pages(repository string) ([]string, error) {
	pages := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md"}
	err := filepath.WalkDir(filepath.Join(repository, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".md") {
			pages = append(pages, strings.TrimPrefix(path, repository+"/"))
		}
		return err
	})
	return pages, err
}

// ShellLines returns the lines of blocks of type sh, and those behind a prompt in blocks of type console.
func ShellLines(text string) []string {
	var lines []string
	block, joined := "", ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if kind, ok := strings.CutPrefix(line, "```"); ok {
			if block != "" {
				kind = ""
			} else if kind == "" {
				kind = "text"
			}
			block, joined = kind, ""
			continue
		}
		command := line
		switch block {
		case "sh", "bash":
		case "console":
			var ok bool
			if command, ok = strings.CutPrefix(line, "$ "); !ok {
				continue
			}
		default:
			continue
		}
		if rest, more := strings.CutSuffix(command, `\`); more {
			joined += rest
			continue
		}
		lines, joined = append(lines, joined+command), ""
	}
	return lines
}

// SimpleCommands splits a line at pipes, lists and process substitutions, and each part into words. It knows quotes and
// comments. Words that quotes protect keep what is in them.
func SimpleCommands(line string) [][]string {
	var all [][]string
	var words []string
	var word strings.Builder
	quote, inWord := rune(0), false
	endWord := func() {
		if inWord {
			words = append(words, word.String())
		}
		word.Reset()
		inWord = false
	}
	endCommand := func() {
		endWord()
		if len(words) > 0 {
			all = append(all, words)
		}
		words = nil
	}
	for _, r := range line {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			} else {
				word.WriteRune(r)
			}
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == ' ' || r == '\t':
			endWord()
		case r == '#' && !inWord:
			endCommand()
			return all
		case strings.ContainsRune("|;&()<>", r):
			endCommand()
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	endCommand()
	return all
}

var assignment = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*=`)

// Program drops what stands before the program in a command: variables, sudo and the like.
func Program(words []string) []string {
	for len(words) > 0 && (words[0] == "sudo" || words[0] == "nice" || words[0] == "time" || assignment.MatchString(words[0])) {
		words = words[1:]
	}
	return words
}
