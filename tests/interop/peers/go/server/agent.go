package main

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
)

const betweenChunks = 5 * time.Millisecond

// scripted does what the first word of the caller's text says:
//
//	echo X     completes with the text X
//	stream N   sends N chunks of one artifact, with a pause between them
//	ask        asks for a name, then greets it
//	fail       fails
//	message    answers with a bare message
//	slow       works until canceled
//	data       completes with a data part
//	file       completes with a file part
type scripted struct{}

// emit hands one event on; false means that nobody wants more.
type emit func(a2a.Event) bool

func (scripted) Execute(ctx context.Context, call *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		perform(ctx, call, func(event a2a.Event) bool { return yield(event, nil) })
	}
}

func (scripted) Cancel(_ context.Context, call *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(call, a2a.TaskStateCanceled, nil), nil)
	}
}

func perform(ctx context.Context, call *a2asrv.ExecutorContext, send emit) {
	text := textOf(call.Message)
	if call.StoredTask != nil { // only `ask` leaves a task that takes another message
		finish(call, send, a2a.NewTextPart("Hello "+text))
		return
	}

	word, rest, _ := strings.Cut(text, " ")
	if word == "message" {
		send(a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart("just a message")))
		return
	}
	if !send(a2a.NewSubmittedTask(call, call.Message)) {
		return
	}
	if !send(a2a.NewStatusUpdateEvent(call, a2a.TaskStateWorking, nil)) {
		return
	}

	switch word {
	case "echo":
		finish(call, send, a2a.NewTextPart(rest))
	case "stream":
		stream(ctx, call, send, rest)
	case "ask":
		end(call, send, a2a.TaskStateInputRequired, "What is your name?")
	case "fail":
		end(call, send, a2a.TaskStateFailed, "it broke")
	case "slow":
		<-ctx.Done()
	case "data":
		finish(call, send, a2a.NewDataPart(map[string]any{
			"n": 1, "list": []any{1, 2.5, "x"}, "deep": map[string]any{"ok": true},
		}))
	case "file":
		part := a2a.NewRawPart([]byte("\x00\x01dragoman"))
		part.Filename, part.MediaType = "blob.bin", "application/octet-stream"
		finish(call, send, part)
	default:
		end(call, send, a2a.TaskStateRejected, fmt.Sprintf("unknown word %q", word))
	}
}

func finish(call *a2asrv.ExecutorContext, send emit, part *a2a.Part) {
	if send(a2a.NewArtifactEvent(call, part)) {
		send(a2a.NewStatusUpdateEvent(call, a2a.TaskStateCompleted, nil))
	}
}

func end(call *a2asrv.ExecutorContext, send emit, state a2a.TaskState, text string) {
	message := a2a.NewMessageForTask(a2a.MessageRoleAgent, call, a2a.NewTextPart(text))
	send(a2a.NewStatusUpdateEvent(call, state, message))
}

func stream(ctx context.Context, call *a2asrv.ExecutorContext, send emit, count string) {
	chunks, err := strconv.Atoi(strings.TrimSpace(count))
	if err != nil {
		end(call, send, a2a.TaskStateRejected, "stream wants a number")
		return
	}
	id := a2a.NewArtifactID()
	for number := range chunks {
		chunk := a2a.NewArtifactUpdateEvent(call, id, a2a.NewTextPart(fmt.Sprintf("chunk-%d ", number)))
		chunk.Append = number > 0
		chunk.LastChunk = number == chunks-1
		if !send(chunk) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(betweenChunks):
		}
	}
	send(a2a.NewStatusUpdateEvent(call, a2a.TaskStateCompleted, nil))
}

func textOf(message *a2a.Message) string {
	var text strings.Builder
	for _, part := range message.Parts {
		text.WriteString(part.Text())
	}
	return text.String()
}
