"""The types of Google that A2A uses, by the names of the files that every protobuf library has them in."""

from __future__ import annotations

from dragoman.dialects.protobuf.schema import read_files

FILES = read_files("""
file google/protobuf/any.proto
package google.protobuf

message Any
  1 type_url string
  2 value bytes

file google/protobuf/empty.proto
package google.protobuf

message Empty

file google/protobuf/struct.proto
package google.protobuf

message Struct
  1 fields map<string,Value>

message Value
  1 null_value NullValue oneof=kind
  2 number_value double oneof=kind
  3 string_value string oneof=kind
  4 bool_value bool oneof=kind
  5 struct_value Struct oneof=kind
  6 list_value ListValue oneof=kind

message ListValue
  1 values repeated Value

enum NullValue
  0 NULL_VALUE

file google/protobuf/timestamp.proto
package google.protobuf

message Timestamp
  1 seconds int64
  2 nanos int32

file google/rpc/status.proto
package google.rpc

message Status
  1 code int32
  2 message string
  3 details repeated google.protobuf.Any

file google/rpc/error_details.proto
package google.rpc

message ErrorInfo
  1 reason string
  2 domain string
  3 metadata map<string,string>

message BadRequest
  1 field_violations repeated BadRequest.FieldViolation

message BadRequest.FieldViolation
  1 field string
  2 description string
  3 reason string
  4 localized_message LocalizedMessage

message LocalizedMessage
  1 locale string
  2 message string
""")
