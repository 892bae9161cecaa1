// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// capability is what the bounding set lacks.
const capability = "CAP_SYS_RESOURCE"

// StripBundle takes what needs CAP_SYS_RESOURCE out of a bundle's config.json; everything else stays as it was.
func StripBundle(config []byte) ([]byte, error) {
	spec, err := object(config)
	if err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	if raw, ok := spec["process"]; ok {
		if spec["process"], err = StripProcess(raw); err != nil {
			return nil, err
		}
	}
	return json.Marshal(spec)
}

// StripProcess does the same for a process.json, as `runc exec` gets it.
func StripProcess(process []byte) ([]byte, error) {
	spec, err := object(process)
	if err != nil {
		return nil, fmt.Errorf("process: %w", err)
	}
	delete(spec, "rlimits")
	var score int
	if raw, ok := spec["oomScoreAdj"]; ok {
		if err := json.Unmarshal(raw, &score); err != nil {
			return nil, fmt.Errorf("process.oomScoreAdj: %w", err)
		}
		if score < 0 {
			delete(spec, "oomScoreAdj")
		}
	}
	if raw, ok := spec["capabilities"]; ok {
		if spec["capabilities"], err = stripCapabilities(raw); err != nil {
			return nil, fmt.Errorf("process.capabilities: %w", err)
		}
	}
	return json.Marshal(spec)
}

// stripCapabilities takes the capability out of every set: bounding, effective, permitted, inheritable, ambient.
func stripCapabilities(raw json.RawMessage) (json.RawMessage, error) {
	if bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return raw, nil
	}
	var sets map[string][]string
	if err := json.Unmarshal(raw, &sets); err != nil {
		return nil, err
	}
	for name, set := range sets {
		kept := make([]string, 0, len(set))
		for _, c := range set {
			if c != capability {
				kept = append(kept, c)
			}
		}
		sets[name] = kept
	}
	return json.Marshal(sets)
}

// object keeps all fields as they are, known or not, numbers included.
func object(data []byte) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	if fields == nil {
		return nil, fmt.Errorf("want a JSON object, have %q", data)
	}
	return fields, nil
}
