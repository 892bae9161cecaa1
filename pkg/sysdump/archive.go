// SPDX-License-Identifier: Apache-2.0

package sysdump

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"time"
)

// archive is a tar.gz with a limit of what it holds.
type archive struct {
	gz   *gzip.Writer
	tar  *tar.Writer
	dir  string
	now  time.Time
	left int64
	// Manifest is written last.
	manifest Manifest
}

// Manifest is manifest.json in the archive.
type Manifest struct {
	Created string `json:"created"`
	Cluster string `json:"cluster"`
	Server  string `json:"server"`
	Version string `json:"fairlead"`
	Bytes   int64  `json:"bytes"`
	// Files are what the archive holds, Missing what it does not, with the reason.
	Files   []File    `json:"files"`
	Missing []Missing `json:"missing"`
}

// File is one file of the archive.
type File struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
	// Cut means that the beginning of a longer text is left out.
	Cut bool `json:"cut,omitempty"`
}

// Missing is what was not collected.
type Missing struct {
	What   string `json:"what"`
	Reason string `json:"reason"`
}

func newArchive(out io.Writer, dir string, now time.Time, limit int64) *archive {
	gz := gzip.NewWriter(out)
	return &archive{gz: gz, tar: tar.NewWriter(gz), dir: dir, now: now, left: limit, manifest: Manifest{Files: []File{}, Missing: []Missing{}}}
}

// miss records what is not in the archive; a nil error is nothing.
func (a *archive) miss(what string, err error) {
	if err != nil {
		a.manifest.Missing = append(a.manifest.Missing, Missing{what, safe(err.Error())})
	}
}

// missed is miss, and reports whether there was an error.
func (a *archive) missed(what string, err error) bool {
	a.miss(what, err)
	return err != nil
}

// add writes one file if it fits.
func (a *archive) add(name string, data []byte, cut bool) error {
	if int64(len(data)) > a.left {
		a.miss(name, fmt.Errorf("its %d bytes are more than what is left of the size limit: set --max-size", len(data)))
		return nil
	}
	a.left -= int64(len(data))
	a.manifest.Bytes += int64(len(data))
	a.manifest.Files = append(a.manifest.Files, File{name, len(data), cut})
	return a.write(name, data)
}

func (a *archive) write(name string, data []byte) error {
	header := &tar.Header{Name: path.Join(a.dir, name), Mode: 0o600, Size: int64(len(data)), ModTime: a.now, Format: tar.FormatPAX}
	if err := a.tar.WriteHeader(header); err != nil {
		return err
	}
	_, err := a.tar.Write(data)
	return err
}

func (a *archive) addJSON(name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		a.miss(name, err)
		return nil
	}
	return a.add(name, append(data, '\n'), false)
}

// close writes the manifest, whatever the limit.
func (a *archive) close() error {
	data, err := json.MarshalIndent(a.manifest, "", "  ")
	if err != nil {
		return err
	}
	if err := a.write("manifest.json", append(data, '\n')); err != nil {
		return err
	}
	if err := a.tar.Close(); err != nil {
		return err
	}
	return a.gz.Close()
}
