// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
)

// RefusedError is the server's answer to an agent that it does not accept.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return "server refused the agent: " + e.Reason }

// ErrHandshake reports a peer that does not speak the protocol.
var ErrHandshake = errors.New("link handshake failed")

// SendHello introduces an agent and waits for the answer. The caller sets a
// deadline on the connection.
func SendHello(nc net.Conn, h Hello) (Welcome, error) {
	payload := appendFields("agentID", h.AgentID, "agentIdentifiers", h.Identifiers,
		"authorization", h.Token, "window", strconv.Itoa(h.Window),
		"have", h.Have, "only", h.Only, "traces", yes(h.Traces), "version", h.Version)
	if len(payload) > maxControl {
		return Welcome{}, fmt.Errorf("%w: token or identifiers are too long", ErrHandshake)
	}
	if _, err := nc.Write(appendFrame(nil, typeHello, 0, string(payload))); err != nil {
		return Welcome{}, fmt.Errorf("sending HELLO: %w", err)
	}
	typ, p, err := readHandshake(nc)
	if err != nil {
		return Welcome{}, err
	}
	if typ == typeRefuse {
		return Welcome{}, &RefusedError{string(p)}
	}
	m, err := parseFields(p)
	if typ != typeWelcome || err != nil || m["serverID"] == "" {
		return Welcome{}, fmt.Errorf("%w: no WELCOME", ErrHandshake)
	}
	w := Welcome{ServerID: m["serverID"]}
	if w.ServerCount, err = count(m["serverCount"], math.MaxInt32); err != nil {
		return Welcome{}, fmt.Errorf("%w: bad number of servers: %w", ErrHandshake, err)
	}
	if w.Links, err = count(m["links"], MaxLinks); err != nil {
		return Welcome{}, fmt.Errorf("%w: bad number of links: %w", ErrHandshake, err)
	}
	if w.Window, err = strconv.Atoi(m["window"]); err != nil || w.Window < 1 || w.Window > maxCredit {
		return Welcome{}, fmt.Errorf("%w: bad window", ErrHandshake)
	}
	return w, nil
}

// MaxAgentID is the greatest length of an agent's ID, in bytes. It is in log lines and in
// the names of what agents share.
const MaxAgentID = 256

// MaxLinks is the greatest number of links that a server may ask an agent for.
const MaxLinks = 64

// yes is the value of a field that is left out if it does not hold.
func yes(holds bool) string {
	if holds {
		return "1"
	}
	return ""
}

// count reads a number from 0 to most, which is 0 where it is left out.
func count(s string, most int) (int, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err == nil && (n < 0 || n > most) {
		err = fmt.Errorf("%d is not between 0 and %d", n, most)
	}
	return n, err
}

// ReadHello waits for an agent's introduction. The caller sets a deadline.
func ReadHello(nc net.Conn) (Hello, error) {
	typ, p, err := readHandshake(nc)
	if err != nil {
		return Hello{}, err
	}
	m, err := parseFields(p)
	if typ != typeHello || err != nil {
		return Hello{}, fmt.Errorf("%w: no HELLO", ErrHandshake)
	}
	h := Hello{AgentID: m["agentID"], Identifiers: m["agentIdentifiers"], Token: m["authorization"],
		Have: m["have"], Only: m["only"], Traces: m["traces"] != "", Version: clip(m["version"])}
	if h.AgentID == "" {
		return Hello{}, fmt.Errorf("%w: no agent ID", ErrHandshake)
	}
	if h.Window, err = strconv.Atoi(m["window"]); err != nil || h.Window < 1 || h.Window > maxCredit {
		return Hello{}, fmt.Errorf("%w: bad window", ErrHandshake)
	}
	return h, nil
}

// SendWelcome accepts an agent.
func SendWelcome(nc net.Conn, w Welcome) error {
	p := appendFields("serverID", w.ServerID, "serverCount", strconv.Itoa(w.ServerCount),
		"window", strconv.Itoa(w.Window), "links", strconv.Itoa(w.Links))
	_, err := nc.Write(appendFrame(nil, typeWelcome, 0, string(p)))
	return err
}

// SendRefuse turns an agent away.
func SendRefuse(nc net.Conn, reason string) {
	_, _ = nc.Write(appendFrame(nil, typeRefuse, 0, clip(reason)))
}

// readHandshake reads one frame without reading ahead of it.
func readHandshake(nc net.Conn) (byte, []byte, error) {
	var h [headerLen]byte
	if _, err := io.ReadFull(nc, h[:]); err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrHandshake, err)
	}
	length := int(h[1])<<16 | int(h[2])<<8 | int(h[3])
	if length > maxControl || binary.BigEndian.Uint32(h[4:]) != 0 {
		return 0, nil, fmt.Errorf("%w: not the protocol", ErrHandshake)
	}
	p := make([]byte, length)
	if _, err := io.ReadFull(nc, p); err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrHandshake, err)
	}
	return h[0], p, nil
}
