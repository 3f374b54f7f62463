"""The services that gRPC servers offer beside their own: health and reflection."""

from __future__ import annotations

from typing import Final

from dragoman.dialects.protobuf.schema import read_files

HEALTH: Final = "grpc.health.v1"
# The same messages under two names: older tools ask for the second one.
REFLECTION: Final = "grpc.reflection.v1"
OLDER_REFLECTION: Final = "grpc.reflection.v1alpha"

_HEALTH = """
file grpc/health/v1/health.proto
package grpc.health.v1

message HealthCheckRequest
  1 service string

message HealthCheckResponse
  1 status HealthCheckResponse.ServingStatus

enum HealthCheckResponse.ServingStatus
  0 UNKNOWN
  1 SERVING
  2 NOT_SERVING
  3 SERVICE_UNKNOWN

message HealthListRequest

message HealthListResponse
  1 statuses map<string,HealthCheckResponse>

service Health
  Check HealthCheckRequest HealthCheckResponse
  List HealthListRequest HealthListResponse
  Watch HealthCheckRequest stream HealthCheckResponse
"""

_REFLECTION = """
message ServerReflectionRequest
  1 host string
  3 file_by_filename string oneof=message_request
  4 file_containing_symbol string oneof=message_request
  5 file_containing_extension ExtensionRequest oneof=message_request
  6 all_extension_numbers_of_type string oneof=message_request
  7 list_services string oneof=message_request

message ExtensionRequest
  1 containing_type string
  2 extension_number int32

message ServerReflectionResponse
  1 valid_host string
  2 original_request ServerReflectionRequest
  4 file_descriptor_response FileDescriptorResponse oneof=message_response
  5 all_extension_numbers_response ExtensionNumberResponse oneof=message_response
  6 list_services_response ListServiceResponse oneof=message_response
  7 error_response ErrorResponse oneof=message_response

message FileDescriptorResponse
  1 file_descriptor_proto repeated bytes

message ExtensionNumberResponse
  1 base_type_name string
  2 extension_number repeated int32

message ListServiceResponse
  1 service repeated ServiceResponse

message ServiceResponse
  1 name string

message ErrorResponse
  1 error_code int32
  2 error_message string

service ServerReflection
  ServerReflectionInfo stream ServerReflectionRequest stream ServerReflectionResponse
"""


def _reflection(package: str) -> str:
    return f"file {package.replace('.', '/')}/reflection.proto\npackage {package}\n{_REFLECTION}"


FILES = read_files(_HEALTH + _reflection(REFLECTION) + _reflection(OLDER_REFLECTION))
