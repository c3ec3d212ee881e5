package openapi

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"

	"go.yaml.in/yaml/v3"
)

//go:embed openapi.yaml
var source []byte

// JSON is the document as JSON, members in the order of the source. The caller
// must not change it.
func JSON() []byte { return document() }

var document = sync.OnceValue(func() []byte {
	var root yaml.Node
	if err := yaml.Unmarshal(source, &root); err != nil {
		panic(fmt.Sprintf("openapi: openapi.yaml: %v", err)) // embedded: a bug in the build
	}
	var b bytes.Buffer
	appendNode(&b, root.Content[0])
	return b.Bytes()
})

// appendNode writes a YAML node as JSON, in the order of the source, which the
// docs page keeps; aliases are written out.
func appendNode(b *bytes.Buffer, n *yaml.Node) {
	switch n.Kind {
	case yaml.AliasNode:
		appendNode(b, n.Alias)
	case yaml.MappingNode:
		b.WriteByte('{')
		for i := 0; i < len(n.Content); i += 2 {
			if i > 0 {
				b.WriteByte(',')
			}
			appendJSON(b, n.Content[i].Value)
			b.WriteByte(':')
			appendNode(b, n.Content[i+1])
		}
		b.WriteByte('}')
	case yaml.SequenceNode:
		b.WriteByte('[')
		for i, c := range n.Content {
			if i > 0 {
				b.WriteByte(',')
			}
			appendNode(b, c)
		}
		b.WriteByte(']')
	default:
		if n.Tag == "!!str" || n.Tag == "!!timestamp" {
			appendJSON(b, n.Value)
			return
		}
		var v any
		if err := n.Decode(&v); err != nil {
			panic(fmt.Sprintf("openapi: openapi.yaml line %d: %v", n.Line, err))
		}
		appendJSON(b, v)
	}
}

func appendJSON(b *bytes.Buffer, v any) {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("openapi: %v", err)) // scalars always encode
	}
	b.Truncate(b.Len() - 1) // Encode ends with a newline
}
