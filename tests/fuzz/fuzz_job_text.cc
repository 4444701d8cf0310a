// A job as text, settings of the command line, and the check at submission: what passes the check can be cut, hosted and printed.
//
//   input := n:u8 Block(setting)^(n mod 4) Rest(text)
#include "client/cli/job_file.h"
#include "client/cli/set_field.h"
#include "common/base/check.h"
#include "common/model/job_check.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cairn::ByteSource in(data, size);
  std::vector<std::string> settings(in.Below(4));
  for (std::string& setting : settings) setting = std::string(in.Block());
  auto spec = cairn::ParseJobText(std::string(in.Rest()), "input");
  if (!spec.ok()) return 0;
  for (const std::string& setting : settings) (void)cairn::ApplySetting(setting, &*spec);
  const auto job = cairn::CheckJob(*spec);
  if (!job.ok()) {
    CAIRN_CHECK(!job.status().message().empty(), "an error without a word");
    return 0;
  }
  // What is resolved is valid, too.
  CAIRN_CHECK(cairn::CheckJob(job->spec).ok(), "the resolved job is refused");
  return 0;
}
