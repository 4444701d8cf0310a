// Protocol buffers as one line for a reader of transcripts: the fields that are set, without those that only fill the
// page (job descriptions, data, addresses, numbers that differ from run to run).
#pragma once

#include <string>

#include "google/protobuf/message.h"

namespace cairn {

// "job 1, generation 2, partitions [{partition 0} {partition 1, backup}]"
std::string FieldsText(const google::protobuf::Message& message);

// A message whose fields are one oneof: "host_partitions job 1, generation 2". The name alone where nothing is set in
// it.
std::string KindText(const google::protobuf::Message& message);

}  // namespace cairn
