"""The messages that describe .proto files, as far as ours need them; reflection sends them."""

from __future__ import annotations

from dragoman.dialects.protobuf.schema import read_files

FILES = read_files("""
file google/protobuf/descriptor.proto
package google.protobuf

message FileDescriptorProto
  1 name string
  2 package string
  3 dependency repeated string
  4 message_type repeated DescriptorProto
  5 enum_type repeated EnumDescriptorProto
  6 service repeated ServiceDescriptorProto
  12 syntax string

message DescriptorProto
  1 name string
  2 field repeated FieldDescriptorProto
  3 nested_type repeated DescriptorProto
  4 enum_type repeated EnumDescriptorProto
  7 options MessageOptions
  8 oneof_decl repeated OneofDescriptorProto

message MessageOptions
  7 map_entry bool

message FieldDescriptorProto
  1 name string
  3 number int32
  4 label FieldDescriptorProto.Label
  5 type FieldDescriptorProto.Type
  6 type_name string
  9 oneof_index optional int32
  10 json_name string
  17 proto3_optional bool

enum FieldDescriptorProto.Label
  1 LABEL_OPTIONAL
  3 LABEL_REPEATED

enum FieldDescriptorProto.Type
  1 TYPE_DOUBLE
  3 TYPE_INT64
  5 TYPE_INT32
  8 TYPE_BOOL
  9 TYPE_STRING
  11 TYPE_MESSAGE
  12 TYPE_BYTES
  14 TYPE_ENUM

message OneofDescriptorProto
  1 name string

message EnumDescriptorProto
  1 name string
  2 value repeated EnumValueDescriptorProto

message EnumValueDescriptorProto
  1 name string
  2 number optional int32

message ServiceDescriptorProto
  1 name string
  2 method repeated MethodDescriptorProto

message MethodDescriptorProto
  1 name string
  2 input_type string
  3 output_type string
  5 client_streaming bool
  6 server_streaming bool
""")
