package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	grpcv0 "github.com/a2aproject/a2a-go/v2/a2agrpc/v0"
	grpcv1 "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// The SDK also returns ErrServerError, ErrInternalError, ErrParseError and ErrMethodNotFound when it could not read
// the answer, so those never prove that the agent refused for the right reason. These do.
var refusals = []error{
	a2a.ErrInvalidRequest, a2a.ErrInvalidParams, a2a.ErrTaskNotFound, a2a.ErrTaskNotCancelable,
	a2a.ErrPushNotificationNotSupported, a2a.ErrUnsupportedOperation, a2a.ErrUnsupportedContentType,
	a2a.ErrInvalidAgentResponse, a2a.ErrExtendedCardNotConfigured, a2a.ErrExtensionSupportRequired,
	a2a.ErrVersionNotSupported,
}

// peer is the agent under test, seen through one client of one interface.
type peer struct {
	card    *a2a.AgentCard
	version string
	client  *a2aclient.Client
}

func (p *peer) legacy() bool {
	return p.version == "0.3"
}

// discover reads the card and makes a client of the one interface to test: of several the SDK would take the newest.
func discover(ctx context.Context, url, binding, version string) *peer {
	resolver := agentcard.Resolver{Client: http.DefaultClient, CardParser: agentcard.DefaultCardParser}
	if version == "0.3" {
		resolver.CardParser = a2av0.NewAgentCardParser()
	}
	card := must(resolver.Resolve(ctx, url))
	expect(card.Capabilities.Streaming, "the card does not claim streaming: the client would silently not stream")

	var offered []string
	for _, each := range card.SupportedInterfaces {
		offered = append(offered, fmt.Sprintf("%s %s", each.ProtocolBinding, each.ProtocolVersion))
		if each.ProtocolBinding == a2a.TransportProtocol(binding) && speaks(each, version) {
			narrow := *card
			narrow.SupportedInterfaces = []*a2a.AgentInterface{each}
			return &peer{card: &narrow, version: version, client: clientOf(ctx, &narrow)}
		}
	}
	fail("the card offers %v, not %s %s", offered, binding, version)
	return nil
}

func speaks(each *a2a.AgentInterface, version string) bool {
	return string(each.ProtocolVersion) == version || strings.HasPrefix(string(each.ProtocolVersion), version+".")
}

func clientOf(ctx context.Context, card *a2a.AgentCard) *a2aclient.Client {
	// A client of our own: the SDK's default ends every stream after three minutes.
	return clientWith(ctx, card, &http.Client{})
}

// withToken says who calls.
type withToken struct{}

func (withToken) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer open-sesame")
	return http.DefaultTransport.RoundTrip(request)
}

func (withToken) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer open-sesame"}, nil
}

func (withToken) RequireTransportSecurity() bool {
	return false
}

func clientWith(
	ctx context.Context, card *a2a.AgentCard, plain *http.Client, dialing ...grpc.DialOption,
) *a2aclient.Client {
	dialing = append(dialing, grpc.WithTransportCredentials(insecure.NewCredentials()))
	return must(a2aclient.NewFromCard(
		ctx, card,
		a2aclient.WithDefaultsDisabled(),
		a2aclient.WithJSONRPCTransport(plain),
		a2aclient.WithRESTTransport(plain),
		a2av0.WithJSONRPCTransport(a2av0.JSONRPCTransportConfig{Client: plain}),
		a2av0.WithRESTTransport(a2av0.RESTTransportConfig{Client: plain}),
		grpcv1.WithGRPCTransport(dialing...),
		grpcv0.WithGRPCTransport(dialing...),
	))
}

// --- asking

func saying(text string) []*a2a.Part {
	return []*a2a.Part{a2a.NewTextPart(text)}
}

func calling(skill string, arguments map[string]any) []*a2a.Part {
	return []*a2a.Part{a2a.NewDataPart(map[string]any{"tool": skill, "arguments": arguments})}
}

func requestOf(parts []*a2a.Part, options ...func(*a2a.SendMessageRequest)) *a2a.SendMessageRequest {
	request := &a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser, parts...)}
	for _, option := range options {
		option(request)
	}
	return request
}

func toTask(id a2a.TaskID) func(*a2a.SendMessageRequest) {
	return func(request *a2a.SendMessageRequest) { request.Message.TaskID = id }
}

func inContext(id string) func(*a2a.SendMessageRequest) {
	return func(request *a2a.SendMessageRequest) { request.Message.ContextID = id }
}

func atOnce(request *a2a.SendMessageRequest) {
	request.Config = &a2a.SendMessageConfig{ReturnImmediately: true}
}

func (p *peer) sendForTask(
	ctx context.Context, parts []*a2a.Part, options ...func(*a2a.SendMessageRequest),
) *a2a.Task {
	answer := must(p.client.SendMessage(ctx, requestOf(parts, options...)))
	task, ok := answer.(*a2a.Task)
	expect(ok, "wanted a task, got %T", answer)
	expect(task.ID != "" && task.ContextID != "", "the task lacks its id or context id")
	return task
}

func (p *peer) get(ctx context.Context, id a2a.TaskID) *a2a.Task {
	return must(p.client.GetTask(ctx, &a2a.GetTaskRequest{ID: id}))
}

func (p *peer) getWithHistory(ctx context.Context, id a2a.TaskID, length int) *a2a.Task {
	return must(p.client.GetTask(ctx, &a2a.GetTaskRequest{ID: id, HistoryLength: &length}))
}

func (p *peer) cancel(ctx context.Context, id a2a.TaskID) (*a2a.Task, error) {
	return p.client.CancelTask(ctx, &a2a.CancelTaskRequest{ID: id})
}

// startSlow returns a task that is working and stays so until it is canceled.
func (p *peer) startSlow(ctx context.Context) *a2a.Task {
	task := p.sendForTask(ctx, calling("slow", map[string]any{}), atOnce)
	for task.Status.State != a2a.TaskStateWorking {
		expect(!task.Status.State.Terminal(), "slow became %s", task.Status.State)
		task = p.get(ctx, task.ID)
	}
	return task
}

// askName returns a task that waits for the answer to its question.
func (p *peer) askName(ctx context.Context) *a2a.Task {
	task := p.sendForTask(ctx, calling("ask_name", map[string]any{}))
	expectState(task, a2a.TaskStateInputRequired)
	question := textOfMessage(task.Status.Message)
	expect(question == "Your name?", "it asks %q", question)
	return task
}

func drained(events iter.Seq2[a2a.Event, error]) ([]a2a.Event, error) {
	var all []a2a.Event
	for event, err := range events {
		if err != nil {
			return all, err
		}
		all = append(all, event)
	}
	return all, nil
}

// --- expecting

func expectState(task *a2a.Task, wanted a2a.TaskState) {
	expect(task.Status.State == wanted, "state is %s, wanted %s: %q", task.Status.State, wanted, textOf(task))
}

// refused ends the case unless err is one of the SDK's own errors.
func refused(err error, wanted ...error) {
	expect(err != nil, "nothing was refused, wanted %v", wanted)
	for _, each := range wanted {
		if errors.Is(err, each) {
			return
		}
	}
	fail("refused with %q (%s), wanted %v", err, a2a.ErrorReason(err), wanted)
}

// --- reading

func textOfParts(parts []*a2a.Part) string {
	var text strings.Builder
	for _, part := range parts {
		text.WriteString(part.Text())
	}
	return text.String()
}

func textOfMessage(message *a2a.Message) string {
	if message == nil {
		return ""
	}
	return textOfParts(message.Parts)
}

// textOf is all a human would read: the artifacts, else the message of the status.
func textOf(task *a2a.Task) string {
	var text strings.Builder
	for _, artifact := range task.Artifacts {
		text.WriteString(textOfParts(artifact.Parts))
	}
	if text.Len() == 0 {
		return textOfMessage(task.Status.Message)
	}
	return text.String()
}

func kindOf(event a2a.Event) string {
	switch event.(type) {
	case *a2a.Task:
		return "task"
	case *a2a.Message:
		return "message"
	case *a2a.TaskStatusUpdateEvent:
		return "status_update"
	case *a2a.TaskArtifactUpdateEvent:
		return "artifact_update"
	}
	return fmt.Sprintf("%T", event)
}

func kindsOf(events []a2a.Event) []string {
	var kinds []string
	for _, event := range events {
		kinds = append(kinds, kindOf(event))
	}
	return kinds
}

func lastStateOf(events []a2a.Event) a2a.TaskState {
	expect(len(events) > 0, "the stream is empty")
	switch last := events[len(events)-1].(type) {
	case *a2a.Task:
		return last.Status.State
	case *a2a.TaskStatusUpdateEvent:
		return last.Status.State
	default:
		fail("the last event is %s", kindOf(last))
		return ""
	}
}

func expectIDs(events []a2a.Event, wanted a2a.TaskInfo) {
	for _, event := range events {
		expect(event.TaskInfo() == wanted, "%s has ids %v, wanted %v", kindOf(event), event.TaskInfo(), wanted)
	}
}

// streamedText is the artifacts as a caller assembles them: a snapshot, then chunks that append or replace.
func streamedText(events []a2a.Event) string {
	texts := map[a2a.ArtifactID]string{}
	var order []a2a.ArtifactID
	put := func(artifact *a2a.Artifact, appending bool) {
		before, seen := texts[artifact.ID]
		if !seen {
			order = append(order, artifact.ID)
		}
		if !appending {
			before = ""
		}
		texts[artifact.ID] = before + textOfParts(artifact.Parts)
	}
	for _, event := range events {
		switch each := event.(type) {
		case *a2a.Task:
			for _, artifact := range each.Artifacts {
				put(artifact, false)
			}
		case *a2a.TaskArtifactUpdateEvent:
			put(each.Artifact, each.Append)
		}
	}
	var text strings.Builder
	for _, id := range order {
		text.WriteString(texts[id])
	}
	return text.String()
}
