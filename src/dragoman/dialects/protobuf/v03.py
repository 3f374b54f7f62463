"""Package a2a.v1: the messages of A2A 0.3 over gRPC. Their ProtoJSON is what 0.3 sends over REST."""

from __future__ import annotations

from typing import Final

from dragoman.dialects.protobuf.schema import read_files

PACKAGE: Final = "a2a.v1"

FILES = read_files("""
file a2a/v1/a2a.proto
package a2a.v1

message SendMessageConfiguration
  1 accepted_output_modes repeated string
  2 push_notification PushNotificationConfig
  3 history_length int32
  4 blocking bool

message Task
  1 id string
  2 context_id string
  3 status TaskStatus
  4 artifacts repeated Artifact
  5 history repeated Message
  6 metadata google.protobuf.Struct

message TaskStatus
  1 state TaskState
  2 update Message json=message
  3 timestamp google.protobuf.Timestamp

message Part
  1 text string oneof=part
  2 file FilePart oneof=part
  3 data DataPart oneof=part
  4 metadata google.protobuf.Struct

message FilePart
  1 file_with_uri string oneof=file
  2 file_with_bytes bytes oneof=file
  3 mime_type string
  4 name string

message DataPart
  1 data google.protobuf.Struct

message Message
  1 message_id string
  2 context_id string
  3 task_id string
  4 role Role
  5 content repeated Part
  6 metadata google.protobuf.Struct
  7 extensions repeated string

message Artifact
  1 artifact_id string
  3 name string
  4 description string
  5 parts repeated Part
  6 metadata google.protobuf.Struct
  7 extensions repeated string

message TaskStatusUpdateEvent
  1 task_id string
  2 context_id string
  3 status TaskStatus
  4 final bool
  5 metadata google.protobuf.Struct

message TaskArtifactUpdateEvent
  1 task_id string
  2 context_id string
  3 artifact Artifact
  4 append bool
  5 last_chunk bool
  6 metadata google.protobuf.Struct

message PushNotificationConfig
  1 id string
  2 url string
  3 token string
  4 authentication AuthenticationInfo

message AuthenticationInfo
  1 schemes repeated string
  2 credentials string

message AgentInterface
  1 url string
  2 transport string

message AgentCard
  16 protocol_version string
  1 name string
  2 description string
  3 url string
  14 preferred_transport string
  15 additional_interfaces repeated AgentInterface
  4 provider AgentProvider
  5 version string
  6 documentation_url string
  7 capabilities AgentCapabilities
  8 security_schemes map<string,SecurityScheme>
  9 security repeated Security
  10 default_input_modes repeated string
  11 default_output_modes repeated string
  12 skills repeated AgentSkill
  13 supports_authenticated_extended_card bool
  17 signatures repeated AgentCardSignature
  18 icon_url string

message AgentProvider
  1 url string
  2 organization string

message AgentCapabilities
  1 streaming bool
  2 push_notifications bool
  3 extensions repeated AgentExtension

message AgentExtension
  1 uri string
  2 description string
  3 required bool
  4 params google.protobuf.Struct

message AgentSkill
  1 id string
  2 name string
  3 description string
  4 tags repeated string
  5 examples repeated string
  6 input_modes repeated string
  7 output_modes repeated string
  8 security repeated Security

message AgentCardSignature
  1 protected string
  2 signature string
  3 header google.protobuf.Struct

message TaskPushNotificationConfig
  1 name string
  2 push_notification_config PushNotificationConfig

message StringList
  1 list repeated string

message Security
  1 schemes map<string,StringList>

message SecurityScheme
  1 api_key_security_scheme APIKeySecurityScheme oneof=scheme
  2 http_auth_security_scheme HTTPAuthSecurityScheme oneof=scheme
  3 oauth2_security_scheme OAuth2SecurityScheme oneof=scheme
  4 open_id_connect_security_scheme OpenIdConnectSecurityScheme oneof=scheme
  5 mtls_security_scheme MutualTlsSecurityScheme oneof=scheme

message APIKeySecurityScheme
  1 description string
  2 location string
  3 name string

message HTTPAuthSecurityScheme
  1 description string
  2 scheme string
  3 bearer_format string

message OAuth2SecurityScheme
  1 description string
  2 flows OAuthFlows
  3 oauth2_metadata_url string

message OpenIdConnectSecurityScheme
  1 description string
  2 open_id_connect_url string

message MutualTlsSecurityScheme
  1 description string

message OAuthFlows
  1 authorization_code AuthorizationCodeOAuthFlow oneof=flow
  2 client_credentials ClientCredentialsOAuthFlow oneof=flow
  3 implicit ImplicitOAuthFlow oneof=flow
  4 password PasswordOAuthFlow oneof=flow

message AuthorizationCodeOAuthFlow
  1 authorization_url string
  2 token_url string
  3 refresh_url string
  4 scopes map<string,string>

message ClientCredentialsOAuthFlow
  1 token_url string
  2 refresh_url string
  3 scopes map<string,string>

message ImplicitOAuthFlow
  1 authorization_url string
  2 refresh_url string
  3 scopes map<string,string>

message PasswordOAuthFlow
  1 token_url string
  2 refresh_url string
  3 scopes map<string,string>

message SendMessageRequest
  1 request Message json=message
  2 configuration SendMessageConfiguration
  3 metadata google.protobuf.Struct

message GetTaskRequest
  1 name string
  2 history_length int32

message CancelTaskRequest
  1 name string

message GetTaskPushNotificationConfigRequest
  1 name string

message DeleteTaskPushNotificationConfigRequest
  1 name string

message CreateTaskPushNotificationConfigRequest
  1 parent string
  2 config_id string
  3 config TaskPushNotificationConfig

message GetAgentCardRequest

message TaskSubscriptionRequest
  1 name string

message ListTaskPushNotificationConfigRequest
  1 parent string
  2 page_size int32
  3 page_token string

message SendMessageResponse
  1 task Task oneof=payload
  2 msg Message oneof=payload json=message

message StreamResponse
  1 task Task oneof=payload
  2 msg Message oneof=payload json=message
  3 status_update TaskStatusUpdateEvent oneof=payload
  4 artifact_update TaskArtifactUpdateEvent oneof=payload

message ListTaskPushNotificationConfigResponse
  1 configs repeated TaskPushNotificationConfig
  2 next_page_token string

enum TaskState
  0 TASK_STATE_UNSPECIFIED
  1 TASK_STATE_SUBMITTED
  2 TASK_STATE_WORKING
  3 TASK_STATE_COMPLETED
  4 TASK_STATE_FAILED
  5 TASK_STATE_CANCELLED
  6 TASK_STATE_INPUT_REQUIRED
  7 TASK_STATE_REJECTED
  8 TASK_STATE_AUTH_REQUIRED

enum Role
  0 ROLE_UNSPECIFIED
  1 ROLE_USER
  2 ROLE_AGENT

service A2AService
  SendMessage SendMessageRequest SendMessageResponse
  SendStreamingMessage SendMessageRequest stream StreamResponse
  GetTask GetTaskRequest Task
  CancelTask CancelTaskRequest Task
  TaskSubscription TaskSubscriptionRequest stream StreamResponse
  CreateTaskPushNotificationConfig CreateTaskPushNotificationConfigRequest TaskPushNotificationConfig
  GetTaskPushNotificationConfig GetTaskPushNotificationConfigRequest TaskPushNotificationConfig
  ListTaskPushNotificationConfig ListTaskPushNotificationConfigRequest ListTaskPushNotificationConfigResponse
  GetAgentCard GetAgentCardRequest AgentCard
  DeleteTaskPushNotificationConfig DeleteTaskPushNotificationConfigRequest google.protobuf.Empty
""")
