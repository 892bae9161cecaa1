// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	sigsyaml "sigs.k8s.io/yaml"
)

// Stdin is the path that stands for standard input.
const Stdin = "-"

// maxSize bounds one file: the largest request that an API server accepts is 3 MiB.
const maxSize = 64 << 20

// Document is one object of a file.
type Document struct {
	// File is the path, or "-" for standard input.
	File string
	// Index counts the documents of the file from 1.
	Index int
	// Item is the position in the items of a List, or -1.
	Item int
	// Raw is the text of the document; JSON for an item of a List.
	Raw []byte
	// Object is nil if Err is set.
	Object *unstructured.Unstructured
	// Err says why the document is not an object.
	Err error

	line int
	node *yaml.Node
}

// Source is the place of the document for people: "crd.yaml, document 2".
func (d *Document) Source() string {
	s := d.file()
	if d.Index > 0 {
		s += fmt.Sprintf(", document %d", d.Index)
	}
	if d.Item >= 0 {
		s += fmt.Sprintf(", item %d", d.Item)
	}
	return s
}

func (d *Document) file() string {
	if d.File == Stdin {
		return "standard input"
	}
	return d.File
}

// GroupKind is empty for a document without an object.
func (d *Document) GroupKind() schema.GroupKind {
	if d.Object == nil {
		return schema.GroupKind{}
	}
	return d.Object.GroupVersionKind().GroupKind()
}

// Load reads all documents of files, directories (with recursive also of those below) and
// standard input. Its error is about files that cannot be read at all.
func Load(paths []string, recursive bool, stdin io.Reader) ([]*Document, error) {
	var docs []*Document
	var errs []error
	usedStdin := false
	for _, p := range paths {
		if p == Stdin {
			if usedStdin {
				errs = append(errs, errors.New(`"-" is given twice: standard input can be read only once`))
				continue
			}
			usedStdin = true
			more, err := read(p, stdin)
			docs, errs = append(docs, more...), append(errs, err)
			continue
		}
		files, err := expand(p, recursive)
		errs = append(errs, err)
		for _, f := range files {
			more, err := readFile(f)
			docs, errs = append(docs, more...), append(errs, err)
		}
	}
	return docs, errors.Join(errs...)
}

// expand lists the manifests of a directory; a file stands for itself.
func expand(path string, recursive bool) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && p != path && !recursive:
			return filepath.SkipDir
		case !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(p)):
			files = append(files, p)
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		hint := "name a file, or add --recursive to read the directories below"
		if recursive {
			hint = "name a file or another directory"
		}
		err = fmt.Errorf("%s: the directory has no file that ends in .yaml, .yml or .json: %s", path, hint)
	}
	return files, err
}

func readFile(path string) ([]*Document, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return read(path, f)
}

func read(path string, in io.Reader) ([]*Document, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(data) > maxSize {
		return nil, fmt.Errorf("read %s: the file has more than %d MiB: split it", path, maxSize>>20)
	}
	var docs []*Document
	for i, part := range split(data) {
		docs = append(docs, parse(Document{File: path, Index: i + 1, Item: -1, Raw: part.text, line: part.line})...)
	}
	return docs, nil
}

type part struct {
	text []byte
	line int
}

// split cuts a stream at its "---" lines and leaves out documents without content.
func split(data []byte) []part {
	var parts []part
	var b strings.Builder
	start, n, content := 1, 0, false
	flush := func(next int) {
		if content {
			parts = append(parts, part{[]byte(b.String()), start})
		}
		b.Reset()
		start, content = next, false
	}
	for line := range strings.Lines(strings.TrimPrefix(string(data), "\ufeff")) {
		n++
		if rest, ok := strings.CutPrefix(line, "---"); ok && strings.TrimSpace(strings.SplitN(rest, " #", 2)[0]) == "" {
			flush(n + 1)
			continue
		}
		if text := strings.TrimSpace(line); text != "" && text[0] != '#' {
			content = true
		}
		b.WriteString(line)
	}
	flush(n)
	return parts
}

// parse makes one document of a text, or those of the items of a List.
func parse(d Document) []*Document {
	text, err := sigsyaml.YAMLToJSONStrict(d.Raw)
	if err != nil {
		d.Err = fmt.Errorf("not valid YAML or JSON: %w", err)
		return []*Document{&d}
	}
	var root yaml.Node
	if yaml.Unmarshal(d.Raw, &root) == nil && len(root.Content) == 1 {
		d.node = root.Content[0]
	}
	var content map[string]any
	if err := json.Unmarshal(text, &content); err != nil || content == nil {
		d.Err = errors.New("not a Kubernetes object: the document is not a map of fields")
		return []*Document{&d}
	}
	kind, _ := content["kind"].(string)
	if version, _ := content["apiVersion"].(string); kind == "" || version == "" {
		d.Err = errors.New("not a Kubernetes object: apiVersion and kind are required")
		return []*Document{&d}
	}
	items, ok := content["items"].([]any)
	if !ok || !strings.HasSuffix(kind, "List") {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(text); err != nil {
			d.Err = fmt.Errorf("not a Kubernetes object: %w", err)
			return []*Document{&d}
		}
		d.Object = u
		return []*Document{&d}
	}
	var docs []*Document
	for i, item := range items {
		docs = append(docs, parseItem(d, i, item))
	}
	return docs
}

func parseItem(d Document, i int, item any) *Document {
	d.Item, d.node = i, find(find(d.node, "items"), fmt.Sprint(i))
	d.Raw, d.Err = json.Marshal(item)
	if d.Err != nil {
		return &d
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(d.Raw); err != nil {
		d.Err = fmt.Errorf("not a Kubernetes object: %w", err)
		return &d
	}
	d.Object = u
	return &d
}
