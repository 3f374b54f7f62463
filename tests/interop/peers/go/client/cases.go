package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"google.golang.org/grpc"
)

const (
	notIn03          = "not in 0.3"
	toldOnlyToTheLog = "swordfish"
)

var cases = []struct {
	name string
	run  func(context.Context, *peer) string
}{
	{"send", send},
	{"send_reply", sendReply},
	{"stream", stream},
	{"stream_reply", streamReply},
	{"return_immediately", returnImmediately},
	{"get_task", getTask},
	{"get_unknown", getUnknown},
	{"list_tasks", listTasks},
	{"cancel", cancel},
	{"cancel_finished", cancelFinished},
	{"subscribe", subscribe},
	{"subscribe_terminal", subscribeTerminal},
	{"multi_turn", multiTurn},
	{"wrong_context", wrongContext},
	{"terminal_message", terminalMessage},
	{"failed", failed},
	{"rejected", rejected},
	{"data_roundtrip", dataRoundtrip},
	{"file_roundtrip", fileRoundtrip},
	{"push_config", pushConfig},
	{"push_list_delete", pushListDelete},
	{"extended_card", extendedCard},
}

func send(ctx context.Context, p *peer) string {
	task := p.sendForTask(ctx, saying("hello"))
	expectState(task, a2a.TaskStateCompleted)
	expect(textOf(task) == "hello", "echo answered %q", textOf(task))
	expect(len(task.Artifacts) > 0, "the text is not in an artifact")
	return fmt.Sprintf("task %s completed", task.ID)
}

func sendReply(ctx context.Context, p *peer) string {
	answer := must(p.client.SendMessage(ctx, requestOf(calling("reply", map[string]any{"text": "hi"}))))
	message, ok := answer.(*a2a.Message)
	expect(ok, "wanted a message, got %T", answer)
	expect(message.Role == a2a.MessageRoleAgent, "role is %s", message.Role)
	expect(textOfMessage(message) == "hi", "it says %q", textOfMessage(message))
	return "a bare message"
}

func stream(ctx context.Context, p *peer) string {
	request := requestOf(calling("count", map[string]any{"n": 3}))
	events := must(drained(p.client.SendStreamingMessage(ctx, request)))
	kinds := kindsOf(events)
	expect(len(kinds) > 0 && kinds[0] == "task", "the events are %v, the first must be a task", kinds)
	expect(strings.Contains(strings.Join(kinds, " "), "artifact_update"), "no artifact chunk in %v", kinds)
	expect(streamedText(events) == "1 2 3 ", "the chunks make %q", streamedText(events))
	expect(lastStateOf(events) == a2a.TaskStateCompleted, "the stream ends with %s", lastStateOf(events))
	expectIDs(events, events[0].TaskInfo())
	return strings.Join(kinds, ", ")
}

func streamReply(ctx context.Context, p *peer) string {
	request := requestOf(calling("reply", map[string]any{"text": "hi"}))
	events := must(drained(p.client.SendStreamingMessage(ctx, request)))
	expect(len(events) == 1 && kindOf(events[0]) == "message", "the events are %v, wanted one message", kindsOf(events))
	text := textOfMessage(events[0].(*a2a.Message))
	expect(text == "hi", "it says %q", text)
	return "one message"
}

func returnImmediately(ctx context.Context, p *peer) string {
	task := p.sendForTask(ctx, calling("slow", map[string]any{}), atOnce)
	expect(!task.Status.State.Terminal(), "state is %s", task.Status.State)
	expectState(must(p.cancel(ctx, task.ID)), a2a.TaskStateCanceled)
	return fmt.Sprintf("came back %s", task.Status.State)
}

func getTask(ctx context.Context, p *peer) string {
	sent := p.sendForTask(ctx, saying("hello"))
	whole := p.get(ctx, sent.ID)
	expectState(whole, a2a.TaskStateCompleted)
	expect(whole.TaskInfo() == sent.TaskInfo(), "other ids than those of the send")
	expect(textOf(whole) == "hello", "its text is %q", textOf(whole))
	expect(len(whole.History) >= 1, "the history lacks the user's message")

	none, one := len(p.getWithHistory(ctx, sent.ID, 0).History), len(p.getWithHistory(ctx, sent.ID, 1).History)
	// What 0 means in 0.3 was never settled: none by the words of its schema, no limit by its proto.
	allowed := none == 0 || (p.legacy() && none == len(whole.History))
	expect(allowed, "history length 0 gave %d messages of %d", none, len(whole.History))
	expect(one == 1, "history length 1 gave %d messages of %d", one, len(whole.History))
	return fmt.Sprintf("%d messages in the whole history", len(whole.History))
}

func getUnknown(ctx context.Context, p *peer) string {
	_, err := p.client.GetTask(ctx, &a2a.GetTaskRequest{ID: a2a.NewTaskID()})
	refused(err, a2a.ErrTaskNotFound)
	return "ErrTaskNotFound"
}

func listTasks(ctx context.Context, p *peer) string {
	if p.legacy() {
		return notIn03
	}
	stranger := p.sendForTask(ctx, saying("another context"))
	first := p.sendForTask(ctx, saying("one"))
	second := p.sendForTask(ctx, saying("two"), inContext(first.ContextID))
	expect(second.ContextID == first.ContextID, "a message with a context id did not stay in that context")
	expect(second.ID != first.ID, "a message with only a context id continued the old task")

	listed := map[a2a.TaskID]bool{}
	token := ""
	for _, last := range []bool{false, true} {
		page := must(p.client.ListTasks(ctx, &a2a.ListTasksRequest{
			ContextID: first.ContextID, PageSize: 1, PageToken: token,
		}))
		expect(page.TotalSize == 2, "the total size is %d, wanted 2", page.TotalSize)
		expect(len(page.Tasks) == 1, "a page of size 1 has %d tasks", len(page.Tasks))
		expect(page.PageSize == 1, "the page size is %d, wanted 1", page.PageSize)
		expect((page.NextPageToken == "") == last, "the next page token is %q, last=%t", page.NextPageToken, last)
		expect(len(page.Tasks[0].Artifacts) == 0, "artifacts were listed without being asked for")
		listed[page.Tasks[0].ID] = true
		token = page.NextPageToken
	}
	expect(listed[first.ID] && listed[second.ID], "the two pages are not the two tasks")

	detailed := must(p.client.ListTasks(ctx, &a2a.ListTasksRequest{
		ContextID: stranger.ContextID, IncludeArtifacts: true,
	})).Tasks
	expect(len(detailed) == 1 && detailed[0].ID == stranger.ID, "the filter by context id lets others through")
	expect(textOf(detailed[0]) == "another context", "the artifacts were left out though asked for")
	return "two pages of one"
}

func cancel(ctx context.Context, p *peer) string {
	task := p.startSlow(ctx)
	expectState(must(p.cancel(ctx, task.ID)), a2a.TaskStateCanceled)
	expectState(p.get(ctx, task.ID), a2a.TaskStateCanceled)
	_, err := p.cancel(ctx, task.ID)
	refused(err, a2a.ErrTaskNotCancelable)
	return "canceled, then ErrTaskNotCancelable"
}

func cancelFinished(ctx context.Context, p *peer) string {
	task := p.sendForTask(ctx, saying("hello"))
	_, err := p.cancel(ctx, task.ID)
	refused(err, a2a.ErrTaskNotCancelable)
	return "ErrTaskNotCancelable"
}

func subscribe(ctx context.Context, p *peer) string {
	task := p.startSlow(ctx)
	var events []a2a.Event
	for event, err := range p.client.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: task.ID}) {
		expect(err == nil, "%v", err)
		events = append(events, event)
		if len(events) == 1 {
			expect(kindOf(event) == "task", "the first event is %s, wanted a task", kindOf(event))
			must(p.cancel(ctx, task.ID))
		}
	}
	expect(len(events) > 1, "the stream ended without telling that the task was canceled: %v", kindsOf(events))
	expect(lastStateOf(events) == a2a.TaskStateCanceled, "the stream ends with %s", lastStateOf(events))
	expectIDs(events, task.TaskInfo())
	return fmt.Sprintf("%d events", len(events))
}

func subscribeTerminal(ctx context.Context, p *peer) string {
	task := p.sendForTask(ctx, saying("hello"))
	_, err := drained(p.client.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: task.ID}))
	refused(err, wantedOfTerminal(p)...)
	return "refused"
}

func multiTurn(ctx context.Context, p *peer) string {
	asked := p.askName(ctx)
	answered := p.sendForTask(ctx, saying("Ada"), toTask(asked.ID))
	expectState(answered, a2a.TaskStateCompleted)
	expect(answered.TaskInfo() == asked.TaskInfo(), "ids %v became %v", asked.TaskInfo(), answered.TaskInfo())
	expect(textOf(answered) == "Hello Ada", "it answered %q", textOf(answered))

	// A server may answer well when asked for the task and still put fresh ids on the events.
	asked = p.askName(ctx)
	events := must(drained(p.client.SendStreamingMessage(ctx, requestOf(saying("Ada"), toTask(asked.ID)))))
	expect(len(events) > 0, "the stream of the answer is empty")
	expect(p.legacy() || kindOf(events[0]) == "task", "the stream of the answer does not begin with the task")
	expectIDs(events, asked.TaskInfo())
	expect(streamedText(events) == "Hello Ada", "the stream says %q", streamedText(events))
	expect(lastStateOf(events) == a2a.TaskStateCompleted, "the stream ends with %s", lastStateOf(events))
	return "asked and answered, sent and streamed"
}

func wrongContext(ctx context.Context, p *peer) string {
	asked := p.askName(ctx)
	request := requestOf(saying("Ada"), toTask(asked.ID), inContext(a2a.NewContextID()))
	_, err := p.client.SendMessage(ctx, request)
	refused(err, refusals...)
	expectState(p.get(ctx, asked.ID), a2a.TaskStateInputRequired)
	expectState(must(p.cancel(ctx, asked.ID)), a2a.TaskStateCanceled)
	return "refused, and the task still waits"
}

func terminalMessage(ctx context.Context, p *peer) string {
	task := p.sendForTask(ctx, saying("hello"))
	_, err := p.client.SendMessage(ctx, requestOf(saying("more"), toTask(task.ID), inContext(task.ContextID)))
	refused(err, wantedOfTerminal(p)...)
	return "refused"
}

func wantedOfTerminal(p *peer) []error {
	if p.legacy() {
		return refusals
	}
	return []error{a2a.ErrUnsupportedOperation}
}

func failed(ctx context.Context, p *peer) string {
	task := p.sendForTask(ctx, calling("boom", map[string]any{}))
	expectState(task, a2a.TaskStateFailed)
	expect(!strings.Contains(textOf(task), toldOnlyToTheLog), "the text of the exception reached the caller")
	return textOf(task)
}

func rejected(ctx context.Context, p *peer) string {
	task := p.sendForTask(ctx, calling("deny", map[string]any{}))
	expectState(task, a2a.TaskStateRejected)
	expect(textOf(task) == "not today", "it says %q", textOf(task))
	return "not today"
}

func dataRoundtrip(ctx context.Context, p *peer) string {
	// The SDK reads every number as a float64.
	value := map[string]any{
		"number": 7.0, "half": 0.5, "yes": true, "none": nil, "text": "ünï",
		"list": []any{1.0, "two", map[string]any{"three": 3.0}},
	}
	task := p.sendForTask(ctx, calling("same", map[string]any{"value": value}))
	expectState(task, a2a.TaskStateCompleted)
	var seen []any
	for _, artifact := range task.Artifacts {
		for _, part := range artifact.Parts {
			seen = append(seen, part.Data())
		}
	}
	expect(reflect.DeepEqual(seen, []any{value}), "%v came back as %v", value, seen)
	return "equal"
}

// fileRoundtrip sends a file with the text and looks for it in the history: no skill of the agent returns files.
func fileRoundtrip(ctx context.Context, p *peer) string {
	file := a2a.NewRawPart([]byte("\x00\x01dragoman"))
	file.Filename, file.MediaType = "blob.bin", "application/octet-stream"
	sent := p.sendForTask(ctx, append(saying("hello"), file))
	expectState(sent, a2a.TaskStateCompleted)

	history := p.get(ctx, sent.ID).History
	expect(len(history) > 0, "the history lacks the user's message")
	parts := history[0].Parts
	expect(len(parts) == 2, "the user's message has %d parts, wanted 2", len(parts))
	seen := parts[1]
	expect(bytes.Equal(seen.Raw(), file.Raw()), "bytes %q came back as %q", file.Raw(), seen.Raw())
	expect(seen.Filename == file.Filename, "the file is named %q", seen.Filename)
	expect(seen.MediaType == file.MediaType, "the media type is %q", seen.MediaType)
	return "equal in the history"
}

func pushConfig(ctx context.Context, p *peer) string {
	task := p.sendForTask(ctx, saying("hello"))
	hook := &a2a.PushConfig{TaskID: task.ID, ID: "hook", URL: "https://example.com/hook", Token: "secret"}
	made := must(p.client.CreateTaskPushConfig(ctx, hook))
	expect(made.URL == hook.URL, "the address is %q", made.URL)
	found := must(p.client.GetTaskPushConfig(ctx, &a2a.GetTaskPushConfigRequest{TaskID: task.ID, ID: "hook"}))
	expect(found.ID == "hook", "the id is %q", found.ID)
	expect(found.Token == "", "the token is shown")
	return "created and read"
}

func pushListDelete(ctx context.Context, p *peer) string {
	task := p.sendForTask(ctx, saying("hello"))
	must(p.client.CreateTaskPushConfig(ctx, &a2a.PushConfig{TaskID: task.ID, ID: "hook", URL: "https://example.com/hook"}))
	listing := &a2a.ListTaskPushConfigRequest{TaskID: task.ID}
	listed := must(p.client.ListTaskPushConfigs(ctx, listing))
	expect(len(listed) == 1 && listed[0].ID == "hook", "listed %v", listed)
	err := p.client.DeleteTaskPushConfig(ctx, &a2a.DeleteTaskPushConfigRequest{TaskID: task.ID, ID: "hook"})
	expect(err == nil, "deleting failed: %v", err)
	left := must(p.client.ListTaskPushConfigs(ctx, listing))
	expect(len(left) == 0, "left are %v", left)
	return "listed and deleted"
}

func extendedCard(ctx context.Context, p *peer) string {
	// Without the capability the SDK refuses by itself, and nothing would be tested.
	expect(p.card.Capabilities.ExtendedAgentCard, "the card claims no extended card")
	client := clientWith(
		ctx, p.card, &http.Client{Transport: withToken{}}, grpc.WithPerRPCCredentials(withToken{}),
	)
	extended := must(client.GetExtendedAgentCard(ctx, &a2a.GetExtendedAgentCardRequest{}))
	listed := map[string]bool{}
	for _, skill := range p.card.Skills {
		listed[skill.ID] = true
	}
	var more []string
	for _, skill := range extended.Skills {
		if !listed[skill.ID] {
			more = append(more, skill.ID)
		}
	}
	expect(len(more) == 1 && more[0] == "vault", "beyond the public card it has %v", more)
	return "one skill more"
}
