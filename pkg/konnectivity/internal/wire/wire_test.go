// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
)

// fromProto turns the generated type into ours.
func fromProto(p *client.Packet) Packet {
	out := Packet{Type: Type(p.Type), Payload: -1}
	switch v := p.Payload.(type) {
	case *client.Packet_DialRequest:
		out.Payload, out.Protocol, out.Address, out.Random = DialReq, v.DialRequest.Protocol, v.DialRequest.Address, v.DialRequest.Random
	case *client.Packet_DialResponse:
		out.Payload, out.Error, out.ConnID, out.Random = DialRsp, v.DialResponse.Error, v.DialResponse.ConnectID, v.DialResponse.Random
	case *client.Packet_Data:
		out.Payload, out.ConnID, out.Error, out.Data = Data, v.Data.ConnectID, v.Data.Error, v.Data.Data
	case *client.Packet_CloseRequest:
		out.Payload, out.ConnID = CloseReq, v.CloseRequest.ConnectID
	case *client.Packet_CloseResponse:
		out.Payload, out.Error, out.ConnID = CloseRsp, v.CloseResponse.Error, v.CloseResponse.ConnectID
	case *client.Packet_CloseDial:
		out.Payload, out.Random = DialCls, v.CloseDial.Random
	case *client.Packet_Drain:
		out.Payload = Drain
	}
	return out
}

func toProto(p *Packet) *client.Packet {
	out := &client.Packet{Type: client.PacketType(p.Payload)}
	switch p.Payload {
	case DialReq:
		out.Payload = &client.Packet_DialRequest{DialRequest: &client.DialRequest{Protocol: p.Protocol, Address: p.Address, Random: p.Random}}
	case DialRsp:
		out.Payload = &client.Packet_DialResponse{DialResponse: &client.DialResponse{Error: p.Error, ConnectID: p.ConnID, Random: p.Random}}
	case Data:
		out.Payload = &client.Packet_Data{Data: &client.Data{ConnectID: p.ConnID, Error: p.Error, Data: p.Data}}
	case CloseReq:
		out.Payload = &client.Packet_CloseRequest{CloseRequest: &client.CloseRequest{ConnectID: p.ConnID}}
	case CloseRsp:
		out.Payload = &client.Packet_CloseResponse{CloseResponse: &client.CloseResponse{Error: p.Error, ConnectID: p.ConnID}}
	case DialCls:
		out.Payload = &client.Packet_CloseDial{CloseDial: &client.CloseDial{Random: p.Random}}
	case Drain:
		out.Payload = &client.Packet_Drain{Drain: &client.Drain{}}
	}
	return out
}

func same(a, b Packet) bool {
	data := bytes.Equal(a.Data, b.Data)
	a.Data, b.Data = nil, nil
	return data && a.Type == b.Type && a.Payload == b.Payload && a.Protocol == b.Protocol &&
		a.Address == b.Address && a.Random == b.Random && a.ConnID == b.ConnID && a.Error == b.Error
}

var samples = []Packet{
	{Payload: DialReq, Protocol: "tcp", Address: "10.0.0.1:10250", Random: math.MaxInt64},
	{Payload: DialReq},
	{Payload: DialRsp, Random: -1, ConnID: 1},
	{Payload: DialRsp, Error: "dial tcp: connection refused", Random: 77},
	{Payload: CloseReq, ConnID: 300},
	{Payload: CloseRsp, ConnID: math.MinInt64, Error: "x"},
	{Payload: Data, ConnID: 5, Data: []byte("hello")},
	{Payload: Data, ConnID: 5, Error: "e", Data: bytes.Repeat([]byte{7}, 70000)},
	{Payload: Data},
	{Payload: DialCls, Random: 1 << 40},
	{Payload: Drain},
}

func TestAppendEqualsGeneratedCode(t *testing.T) {
	for i := range samples {
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(toProto(&samples[i]))
		if err != nil {
			t.Fatal(err)
		}
		if got := Append(nil, &samples[i]); !bytes.Equal(got, want) {
			t.Errorf("packet %d:\n got %x\nwant %x", i, got[:min(40, len(got))], want[:min(40, len(want))])
		}
	}
}

func TestAppendDataHead(t *testing.T) {
	for _, id := range []int64{0, 1, 127, 128, 1 << 35, -5} {
		for _, n := range []int{1, 100, 16384, 65528, 3 << 20} {
			data := bytes.Repeat([]byte{9}, n)
			want := AppendMessage(nil, &Packet{Payload: Data, ConnID: id, Data: data})
			head := AppendDataHead(nil, id, n)
			if len(head) > MaxDataHead {
				t.Errorf("head of %d bytes, MaxDataHead is %d", len(head), MaxDataHead)
			}
			if got := append(head, data...); !bytes.Equal(got, want) {
				t.Errorf("id %d, %d bytes: head %x, want %x", id, n, head, want[:len(head)])
			}
		}
	}
}

func TestDecodeOddInput(t *testing.T) {
	base := Append(nil, &samples[0])
	group := []byte{15<<3 | 3, 1 << 3, 5, 15<<3 | 4}
	for name, in := range map[string][]byte{
		"unknown fields":     append(append([]byte{12 << 3, 1, 13<<3 | 2, 2, 'a', 'b', 14<<3 | 5, 1, 2, 3, 4, 11<<3 | 1, 1, 2, 3, 4, 5, 6, 7, 8}, group...), base...),
		"other oneof last":   append(append([]byte(nil), base...), Append(nil, &samples[6])...),
		"same message twice": append(append([]byte(nil), Append(nil, &samples[2])...), Append(nil, &samples[3])...),
		"wrong wire type":    {2 << 3, 5, 8, 4},
		"type too large":     {8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		"empty":              {},
		"truncated":          base[:len(base)-1],
		"field zero":         {0, 1},
		"bad utf8":           {0x12, 4, 0x12, 2, 0xff, 0xfe},
		"open group":         {15<<3 | 3, 1 << 3, 5},
		"overlong varint":    bytes.Repeat([]byte{0xff}, 11),
	} {
		t.Run(name, func(t *testing.T) { compare(t, in) })
	}
}

// compare decodes with both and wants the same.
func compare(t *testing.T, in []byte) {
	t.Helper()
	var ref client.Packet
	refErr := proto.Unmarshal(in, &ref)
	got, err := Decode(in)
	if (err != nil) != (refErr != nil) {
		t.Fatalf("ours: %v, generated code: %v, input %x", err, refErr, in)
	}
	if want := fromProto(&ref); err == nil && !same(got, want) {
		t.Fatalf("input %x\n got %+v\nwant %+v", in, got, want)
	}
}

type recorder struct {
	packets []Packet
	data    map[int64][]byte
}

func (r *recorder) HandlePacket(p *Packet) error {
	c := *p
	c.Data = bytes.Clone(p.Data)
	r.packets = append(r.packets, c)
	return nil
}

func (r *recorder) HandleData(id int64, piece []byte) error {
	r.data[id] = append(r.data[id], piece...)
	return nil
}

func TestStreamDecoderAnySplit(t *testing.T) {
	var stream []byte
	want := recorder{data: map[int64][]byte{}}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		p := samples[rng.IntN(len(samples))]
		p.Type = p.Payload
		stream = AppendMessage(stream, &p)
		if p.Payload == Data {
			want.data[p.ConnID] = append(want.data[p.ConnID], p.Data...)
		} else {
			want.packets = append(want.packets, p)
		}
	}
	for _, size := range []int{1, 2, 3, 7, 40, 1000, 16384, 1 << 20} {
		got := recorder{data: map[int64][]byte{}}
		var d StreamDecoder
		for rest := stream; len(rest) > 0; {
			n := min(len(rest), 1+rng.IntN(size))
			if err := d.Feed(rest[:n], &got); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if !d.Idle() || len(got.packets) != len(want.packets) {
			t.Fatalf("pieces of %d: idle %v, %d packets, want %d", size, d.Idle(), len(got.packets), len(want.packets))
		}
		for i := range got.packets {
			if !same(got.packets[i], want.packets[i]) {
				t.Fatalf("pieces of %d: packet %d is %+v, want %+v", size, i, got.packets[i], want.packets[i])
			}
		}
		for id := range want.data {
			if !bytes.Equal(got.data[id], want.data[id]) {
				t.Fatalf("pieces of %d: data of %d differs", size, id)
			}
		}
	}
}

func TestStreamDecoderRefuses(t *testing.T) {
	for name, in := range map[string][]byte{
		"compressed": {1, 0, 0, 0, 1, 0},
		"too large":  {0, 1, 0, 0, 0},
		"garbage":    append([]byte{0, 0, 0, 0, 3}, 0xff, 0xff, 0xff),
	} {
		var d StreamDecoder
		if err := d.Feed(in, &recorder{data: map[int64][]byte{}}); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestTypeNames(t *testing.T) {
	for i := range typeNames {
		if got, want := Type(i).String(), client.PacketType(i).String(); got != want {
			t.Errorf("type %d is %s, want %s", i, got, want)
		}
	}
	if got := Type(99).String(); !strings.Contains(got, "99") {
		t.Errorf("unknown type prints %q", got)
	}
}

func FuzzDecode(f *testing.F) {
	for i := range samples {
		if p := samples[i]; len(p.Data) < 100 {
			f.Add(Append(nil, &p))
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) { compare(t, in) })
}

func FuzzStreamDecoder(f *testing.F) {
	f.Add(AppendMessage(AppendMessage(nil, &samples[6]), &samples[0]), uint8(3))
	f.Fuzz(func(t *testing.T, in []byte, split uint8) {
		whole, parts := recorder{data: map[int64][]byte{}}, recorder{data: map[int64][]byte{}}
		var a, b StreamDecoder
		errA := a.Feed(in, &whole)
		var errB error
		for rest := in; len(rest) > 0 && errB == nil; {
			n := min(len(rest), int(split)%17+1)
			errB = b.Feed(rest[:n], &parts)
			rest = rest[n:]
		}
		if (errA != nil) != (errB != nil) {
			t.Fatalf("whole: %v, in parts: %v", errA, errB)
		}
		if errA == nil && len(whole.packets) != len(parts.packets) {
			t.Fatalf("%d packets whole, %d in parts", len(whole.packets), len(parts.packets))
		}
		for id, d := range whole.data {
			if errA == nil && !bytes.Equal(d, parts.data[id]) {
				t.Fatal("data depends on how the stream is split")
			}
		}
	})
}
