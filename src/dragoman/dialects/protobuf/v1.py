"""Package lf.a2a.v1: the messages of A2A 1.0 over gRPC, and the few fields that 1.1 adds to them."""

from __future__ import annotations

from typing import Final

from dragoman.dialects.protobuf.schema import read_files

PACKAGE: Final = "lf.a2a.v1"

FILES = read_files("""
file lf/a2a/v1/a2a.proto
package lf.a2a.v1

message SendMessageConfiguration
  1 accepted_output_modes repeated string
  2 task_push_notification_config TaskPushNotificationConfig
  3 history_length optional int32
  4 return_immediately bool
  5 if_generation_match optional int64  # 1.1

message Task
  1 id string
  2 context_id string
  3 status TaskStatus
  4 artifacts repeated Artifact
  5 history repeated Message
  6 metadata google.protobuf.Struct
  7 generation int64  # 1.1

message TaskStatus
  1 state TaskState
  2 message Message
  3 timestamp google.protobuf.Timestamp

message Part
  1 text string oneof=content
  2 raw bytes oneof=content
  3 url string oneof=content
  4 data google.protobuf.Value oneof=content
  5 metadata google.protobuf.Struct
  6 filename string
  7 media_type string

message Message
  1 message_id string
  2 context_id string
  3 task_id string
  4 role Role
  5 parts repeated Part
  6 metadata google.protobuf.Struct
  7 extensions repeated string
  8 reference_task_ids repeated string

message Artifact
  1 artifact_id string
  2 name string
  3 description string
  4 parts repeated Part
  5 metadata google.protobuf.Struct
  6 extensions repeated string

message TaskStatusUpdateEvent
  1 task_id string
  2 context_id string
  3 status TaskStatus
  4 metadata google.protobuf.Struct
  5 generation int64  # 1.1

message TaskArtifactUpdateEvent
  1 task_id string
  2 context_id string
  3 artifact Artifact
  4 append bool
  5 last_chunk bool
  6 metadata google.protobuf.Struct
  7 generation int64  # 1.1

message AuthenticationInfo
  1 scheme string
  2 credentials string

message AgentInterface
  1 url string
  2 protocol_binding string
  3 tenant string
  4 protocol_version string

message AgentCard
  1 name string
  2 description string
  3 supported_interfaces repeated AgentInterface
  4 provider AgentProvider
  5 version string
  6 documentation_url optional string
  7 capabilities AgentCapabilities
  8 security_schemes map<string,SecurityScheme>
  9 security_requirements repeated SecurityRequirement
  10 default_input_modes repeated string
  11 default_output_modes repeated string
  12 skills repeated AgentSkill
  13 signatures repeated AgentCardSignature
  14 icon_url optional string

message AgentProvider
  1 url string
  2 organization string

message AgentCapabilities
  1 streaming optional bool
  2 push_notifications optional bool
  3 extensions repeated AgentExtension
  4 extended_agent_card optional bool

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
  8 security_requirements repeated SecurityRequirement

message AgentCardSignature
  1 protected string
  2 signature string
  3 header google.protobuf.Struct

message TaskPushNotificationConfig
  1 tenant string
  2 id string
  3 task_id string
  4 url string
  5 token string
  6 authentication AuthenticationInfo

message StringList
  1 list repeated string

message SecurityRequirement
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
  5 device_code DeviceCodeOAuthFlow oneof=flow

message AuthorizationCodeOAuthFlow
  1 authorization_url string
  2 token_url string
  3 refresh_url string
  4 scopes map<string,string>
  5 pkce_required bool

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

message DeviceCodeOAuthFlow
  1 device_authorization_url string
  2 token_url string
  3 refresh_url string
  4 scopes map<string,string>

message SendMessageRequest
  1 tenant string
  2 message Message
  3 configuration SendMessageConfiguration
  4 metadata google.protobuf.Struct

message GetTaskRequest
  1 tenant string
  2 id string
  3 history_length optional int32
  4 current_generation optional int64  # 1.1

message ListTasksRequest
  1 tenant string
  2 context_id string
  3 status TaskState
  4 page_size optional int32
  5 page_token string
  6 history_length optional int32
  7 status_timestamp_after google.protobuf.Timestamp
  8 include_artifacts optional bool

message ListTasksResponse
  1 tasks repeated Task
  2 next_page_token string
  3 page_size int32
  4 total_size int32

message CancelTaskRequest
  1 tenant string
  2 id string
  3 metadata google.protobuf.Struct

message GetTaskPushNotificationConfigRequest
  1 tenant string
  2 task_id string
  3 id string

message DeleteTaskPushNotificationConfigRequest
  1 tenant string
  2 task_id string
  3 id string

message SubscribeToTaskRequest
  1 tenant string
  2 id string

message ListTaskPushNotificationConfigsRequest
  4 tenant string
  1 task_id string
  2 page_size int32
  3 page_token string

message GetExtendedAgentCardRequest
  1 tenant string

message SendMessageResponse
  1 task Task oneof=payload
  2 message Message oneof=payload

message StreamResponse
  1 task Task oneof=payload
  2 message Message oneof=payload
  3 status_update TaskStatusUpdateEvent oneof=payload
  4 artifact_update TaskArtifactUpdateEvent oneof=payload

message ListTaskPushNotificationConfigsResponse
  1 configs repeated TaskPushNotificationConfig
  2 next_page_token string

enum TaskState
  0 TASK_STATE_UNSPECIFIED
  1 TASK_STATE_SUBMITTED
  2 TASK_STATE_WORKING
  3 TASK_STATE_COMPLETED
  4 TASK_STATE_FAILED
  5 TASK_STATE_CANCELED
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
  ListTasks ListTasksRequest ListTasksResponse
  CancelTask CancelTaskRequest Task
  SubscribeToTask SubscribeToTaskRequest stream StreamResponse
  CreateTaskPushNotificationConfig TaskPushNotificationConfig TaskPushNotificationConfig
  GetTaskPushNotificationConfig GetTaskPushNotificationConfigRequest TaskPushNotificationConfig
  ListTaskPushNotificationConfigs ListTaskPushNotificationConfigsRequest ListTaskPushNotificationConfigsResponse
  GetExtendedAgentCard GetExtendedAgentCardRequest AgentCard
  DeleteTaskPushNotificationConfig DeleteTaskPushNotificationConfigRequest google.protobuf.Empty
""")
