// Reads an agent's card with a2a-java, sends it a message, and prints the card's name and the answer.
//
//     java -cp '.peers/java/VERSION/*' Client.java URL JSONRPC|HTTP+JSON send|stream TEXT [HEADER=VALUE]
//
// HEADER is one of the request for the card. It is written for both 0.3 and the alphas of 1.0.

import io.a2a.A2A;
import io.a2a.client.ClientBuilder;
import io.a2a.client.ClientEvent;
import io.a2a.client.MessageEvent;
import io.a2a.client.TaskEvent;
import io.a2a.client.TaskUpdateEvent;
import io.a2a.client.config.ClientConfig;
import io.a2a.client.transport.jsonrpc.JSONRPCTransport;
import io.a2a.client.transport.jsonrpc.JSONRPCTransportConfig;
import io.a2a.client.transport.rest.RestTransport;
import io.a2a.client.transport.rest.RestTransportConfig;
import io.a2a.spec.AgentCard;
import io.a2a.spec.Task;
import io.a2a.spec.TextPart;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

public class Client {
  public static void main(String[] arguments) throws Exception {
    Map<String, String> headers = new HashMap<>();
    if (arguments.length > 4) {
      String[] header = arguments[4].split("=", 2);
      headers.put(header[0], header[1]);
    }
    AgentCard card = A2A.getAgentCard(arguments[0], null, headers);
    System.out.println(card.name());

    CompletableFuture<String> answer = new CompletableFuture<>();
    ClientConfig config = new ClientConfig.Builder().setStreaming(arguments[2].equals("stream")).build();
    ClientBuilder builder = io.a2a.client.Client.builder(card).clientConfig(config);
    if (arguments[1].equals("JSONRPC")) {
      builder.withTransport(JSONRPCTransport.class, new JSONRPCTransportConfig());
    } else {
      builder.withTransport(RestTransport.class, new RestTransportConfig());
    }
    builder.addConsumer((event, from) -> take(event, answer));
    builder.build().sendMessage(A2A.toUserMessage(arguments[3]));
    System.out.println(answer.get(20, TimeUnit.SECONDS));
    System.exit(0);
  }

  private static void take(ClientEvent event, CompletableFuture<String> answer) {
    if (event instanceof TaskEvent task) {
      completeIfOver(task.getTask(), answer);
    } else if (event instanceof TaskUpdateEvent update) {
      completeIfOver(update.getTask(), answer);
    } else if (event instanceof MessageEvent message) {
      answer.complete(text(message.getMessage()));
    }
  }

  private static void completeIfOver(Task task, CompletableFuture<String> answer) {
    if (Boolean.TRUE.equals(member(member(member(task, "status"), "state"), "isFinal"))) {
      answer.complete(text(task));
    }
  }

  /** All texts in something of the SDK, whose accessors are called `parts()` in 1.0 and `getParts()` in 0.3. */
  private static String text(Object thing) {
    StringBuilder text = new StringBuilder();
    if (thing instanceof List<?> list) {
      list.forEach(each -> text.append(text(each)));
    } else if (thing instanceof TextPart part) {
      text.append(member(part, "text"));
    } else if (thing instanceof Task task) {
      text.append(text(member(task, "artifacts")));
    } else {
      text.append(text(member(thing, "parts")));
    }
    return text.toString();
  }

  private static Object member(Object thing, String name) {
    String getter = "get" + name.substring(0, 1).toUpperCase() + name.substring(1);
    for (String each : List.of(name, getter)) {
      try {
        return thing.getClass().getMethod(each).invoke(thing);
      } catch (NoSuchMethodException missing) {
        continue;
      } catch (ReflectiveOperationException broken) {
        throw new IllegalStateException(broken);
      }
    }
    return List.of();
  }
}
