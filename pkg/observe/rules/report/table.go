// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
)

var marks = map[rules.Status]struct{ mark, color string }{
	rules.OK: {"✓", "32"}, rules.Warning: {"!", "33"}, rules.Failed: {"✗", "31"}, rules.Unknown: {"?", "35"}, rules.Skipped: {"-", "2"}, rules.Suppressed: {"~", "2"},
}

type printer struct {
	out   io.Writer
	style Style
	err   error
}

// table prints results by group. Short leaves out what passed, what does not apply and headings.
func table(out io.Writer, r *rules.Report, style Style, short bool) error {
	p := &printer{out: out, style: style}
	if !short {
		where := r.Cluster
		if where == "" {
			where = r.Server
		}
		if r.Version != "" {
			where += ", Kubernetes " + r.Version
		}
		p.line("Checking %s\n", where)
	}
	group := ""
	for i, c := range r.Checks {
		if c.Group != group {
			group = c.Group
			if !short {
				p.line("\n%s\n", p.paint("1", group))
			}
		}
		if short && (c.Status == rules.OK || c.Status == rules.Skipped || c.Status == rules.Suppressed) {
			continue
		}
		if c.Status == rules.Skipped {
			p.skipped(r.Checks, i)
			continue
		}
		p.result(c)
	}
	if !short {
		p.line("\n")
	}
	p.wrap("", 0, "", totals(r))
	return p.err
}

func (p *printer) result(c rules.Result) {
	m := marks[c.Status]
	p.wrap(" "+p.paint(m.color, m.mark)+" "+c.ID+"  ", len(" x ")+len(c.ID)+len("  "), indent, c.Title)
	if c.Status == rules.Unknown {
		p.wrapped("unknown: ", c.Reason)
	}
	if c.Status == rules.Suppressed {
		p.wrapped("", "suppressed")
	}
	for i, f := range c.Findings {
		if f.Suppressed {
			continue
		}
		p.wrapped("", finding(f))
		if next := i + 1; next < len(c.Findings) && c.Findings[next].Fix == f.Fix {
			continue // once below the last
		}
		p.wrapped("fix: ", f.Fix)
	}
	if c.Status == rules.Failed && c.Reason != "" {
		p.wrapped("", notAll+c.Reason)
	}
}

// notAll begins the reason why a failed check may have found more.
const notAll = "not all could be read: "

// skipped prints one line for all results of a group that are skipped for the same reason, at the first of them.
func (p *printer) skipped(all []rules.Result, at int) {
	var ids []string
	for i, c := range all {
		if c.Group == all[at].Group && c.Status == rules.Skipped && c.Reason == all[at].Reason {
			if i < at {
				return
			}
			ids = append(ids, c.ID)
		}
	}
	name := ids[0]
	if len(ids) > 1 {
		name = fmt.Sprintf("%s and %d more", ids[0], len(ids)-1)
	}
	p.wrap(" "+p.paint("2", "-")+" ", 3, "   ", name+": skipped: "+all[at].Reason)
}

func totals(r *rules.Report) string {
	var parts []string
	for _, s := range []rules.Status{rules.OK, rules.Warning, rules.Failed, rules.Unknown, rules.Skipped, rules.Suppressed} {
		if n := r.Counts[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	return strings.Join(parts, ", ")
}

const indent = "     "

func (p *printer) wrapped(label, text string) {
	if label == "fix: " {
		label = p.paint("33", label)
	}
	p.wrap(indent+label, len(indent)+5*min(1, len(label)), indent, text)
}

// wrap breaks text between words at the style's width. begin is printed first and takes that many columns; later lines begin with next.
func (p *printer) wrap(begin string, columns int, next, text string) {
	for i, paragraph := range strings.Split(clean(text), "\n") {
		if i > 0 {
			begin, columns = next, len(next)
		}
		line, used := begin, columns
		for j, word := range strings.Split(paragraph, " ") {
			n := utf8.RuneCountInString(word)
			if j > 0 && p.style.Width > 0 && used+1+n > p.style.Width {
				p.line("%s\n", line)
				line, used = next+word, len(next)+n
				continue
			}
			if j > 0 {
				line, used = line+" ", used+1
			}
			line, used = line+word, used+n
		}
		p.line("%s\n", line)
	}
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.out, format, args...)
	}
}

func (p *printer) paint(code, text string) string {
	if !p.style.Color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// List prints the rules, one a line.
func List(out io.Writer, all []rules.Rule) error {
	p := &printer{out: out}
	p.line("ID          WHEN    CHECKS THAT\n")
	for _, r := range all {
		p.line("%s  %-6s  %s\n", r.ID, r.Phase, r.Title)
	}
	return p.err
}

// Explain prints all about one rule.
func Explain(out io.Writer, r rules.Rule, style Style) error {
	p := &printer{out: out, style: style}
	p.line("%s  %s\n\n", r.ID, r.Title)
	p.wrap("", 0, "", r.Why)
	p.line("\nFix:\n")
	p.wrap("  ", 2, "  ", r.Fix)
	if len(r.Needs) > 0 {
		p.line("\nSkipped unless these pass: %s\n", strings.Join(r.Needs, ", "))
	}
	if len(r.NotIf) > 0 {
		p.line("\nSkipped if one of these fails: %s\n", strings.Join(r.NotIf, ", "))
	}
	p.line("\nMore: %s%s.md\n", PageBase, r.ID)
	return p.err
}

// Markdown is the table of all rules in docs/check.md.
func Markdown(all []rules.Rule) string {
	var b strings.Builder
	group := ""
	escape := strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;")
	for _, r := range all {
		if r.Group != group {
			group = r.Group
			fmt.Fprintf(&b, "\n### %s\n\n| ID | checks that | otherwise | fix |\n|---|---|---|---|\n", group)
		}
		title := escape.Replace(r.Title)
		if r.Phase == rules.Before {
			title += " (with `--pre` only)"
		}
		fix := "`" + strings.ReplaceAll(r.Fix, "|", `\|`) + "`"
		if !looksLikeCommand(r.Fix) {
			fix = escape.Replace(r.Fix)
		}
		fmt.Fprintf(&b, "| [%s](checks/%[1]s.md) | %s | %s | %s |\n", r.ID, title, escape.Replace(r.Why), fix)
	}
	return b.String()
}

// PageBase is where the pages of docs/checks are.
const PageBase = "https://github.com/fairlead-dev/fairlead/blob/main/docs/checks/"

// Page is the page of a rule in docs/checks.
func Page(r rules.Rule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\nThis check of `fairlead check` passes if: %s.\n\n## Effect\n\n%s\n\n## Find the cause\n\nThe check names the object and what is wrong with it:\n\n", r.ID, r.Title, escapeMarkup(r.Why))
	before := ""
	if r.Phase == rules.Before {
		before = " --pre --filename bundle.yaml"
	}
	fmt.Fprintf(&b, "```sh\nfairlead check%s --only %s\n```\n", before, r.ID)
	if len(r.Needs) > 0 {
		fmt.Fprintf(&b, "\nIt is skipped unless %s.\n", passes(r.Needs))
	}
	if len(r.NotIf) > 0 {
		fmt.Fprintf(&b, "\nIt is skipped if one of these fails, which explains what it finds: %s.\n", linked(r.NotIf))
	}
	b.WriteString("\n## Fix\n\nIn general:\n\n")
	switch commands := Commands(r.Fix); {
	case len(commands) > 0:
		fmt.Fprintf(&b, "```%s\n%s\n```\n", language(r.Fix), strings.Join(commands, "\n"))
	case looksLikeCommand(r.Fix):
		fmt.Fprintf(&b, "```%s\n%s\n```\n", language(r.Fix), r.Fix)
	default:
		fmt.Fprintf(&b, "%s\n", escapeMarkup(r.Fix))
	}
	b.WriteString("\nA finding has the exact command or field. [check.md](../check.md) says how to accept a finding that you do not want to repair.\n")
	return b.String()
}

func passes(ids []string) string {
	if len(ids) == 1 {
		return linked(ids) + " passes"
	}
	return linked(ids) + " pass"
}

func linked(ids []string) string {
	links := make([]string, 0, len(ids))
	for _, id := range ids {
		links = append(links, fmt.Sprintf("[%s](%[1]s.md)", id))
	}
	return strings.Join(links, ", ")
}

func escapeMarkup(text string) string {
	return strings.NewReplacer("<", "&lt;", ">", "&gt;").Replace(text)
}

// programs are those with which commands of fixes begin.
var programs = []string{"kubectl", "fairlead", "kubeadm", "timedatectl", "export", "ls", "chmod", "crictl"}

// Commands are the shell commands of a fix, each with its comment; nil if it has none. In one line, a comment would hide the next command.
func Commands(fix string) []string {
	var out []string
	for part := range strings.SplitSeq(fix, "; ") {
		word, _, _ := strings.Cut(part, " ")
		if slices.Contains(programs, word) {
			out = append(out, part)
		} else if len(out) > 0 {
			out[len(out)-1] += "; " + part
		}
	}
	return out
}

// language is that of a block: one with names to replace cannot be pasted, and fields are paths.
func language(fix string) string {
	if len(Commands(fix)) > 0 && !strings.Contains(fix, "<") {
		return "sh"
	}
	return "text"
}

// looksLikeCommand tells commands and fields from sentences.
func looksLikeCommand(fix string) bool {
	word, _, _ := strings.Cut(fix, " ")
	return strings.ToLower(word[:1]) == word[:1] && !slices.Contains([]string{"a", "the"}, word)
}
