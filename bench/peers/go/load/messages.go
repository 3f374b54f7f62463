package main

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/structpb"
)

// filler is that of bench/agents/words.py: a message of the length a person types.
const filler = " The quick brown fox jumps over the lazy dog, and then once more, since nobody saw it the first time."

// messages makes messages whose ids nobody has used: UUIDs, by which a server may know repeats, or ids typed by hand.
type messages struct {
	prefix string
	last   atomic.Int64
}

func newMessages(ids string) *messages {
	id := uuid.NewString()
	if ids == "uuid" {
		return &messages{prefix: id[:24]}
	}
	return &messages{prefix: "m-" + id[:6] + "-"}
}

// echo is a message to be echoed, and its text.
func (texts *messages) echo() (*a2apb.SendMessageRequest, string) {
	number := texts.last.Add(1)
	text := fmt.Sprintf("echo %012d%s", number, filler)
	return texts.request(number, &a2apb.Part{Content: &a2apb.Part_Text{Text: text}}), text
}

// count is a message that asks for a stream of chunks.
func (texts *messages) count(chunks int) *a2apb.SendMessageRequest {
	arguments := map[string]any{"n": chunks}
	value, err := structpb.NewValue(map[string]any{"tool": "count", "arguments": arguments})
	if err != nil {
		panic(err) // what stands above is a value
	}
	return texts.request(texts.last.Add(1), &a2apb.Part{Content: &a2apb.Part_Data{Data: value}})
}

func (texts *messages) request(number int64, part *a2apb.Part) *a2apb.SendMessageRequest {
	return &a2apb.SendMessageRequest{Message: &a2apb.Message{
		MessageId: fmt.Sprintf("%s%012x", texts.prefix, number),
		Role:      a2apb.Role_ROLE_USER,
		Parts:     []*a2apb.Part{part},
	}}
}

// chunkText is the text of a chunk, about as long as a word.
func chunkText(number int) string {
	return fmt.Sprintf("w%05d ", number)
}

func textOf(artifact *a2apb.Artifact) string {
	if parts := artifact.GetParts(); len(parts) == 1 {
		return parts[0].GetText()
	}
	var text strings.Builder
	for _, part := range artifact.GetParts() {
		text.WriteString(part.GetText())
	}
	return text.String()
}
