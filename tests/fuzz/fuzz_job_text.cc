// A job as text, settings of the command line, any of its fields altered, and the check at submission: what passes the
// check can be cut, hosted and printed.
//
//   input := n:u8 Block(setting)^(n modulo 4) m:u8 (alteration (alter.h))* in (m modulo 48) bytes Rest(text)
#include "client/cli/set_field.h"
#include "common/base/check.h"
#include "common/formats/expand_model.h"
#include "common/formats/job_text.h"
#include "common/model/job_check.h"
#include "tests/fuzz/alter.h"
#include "tests/fuzz/job_seed.h"

namespace cairn {
namespace {

// At most, of the input.
constexpr size_t kAlterationBytes = 48;

void CheckError(const absl::Status& status) {
  CAIRN_CHECK(absl::IsInvalidArgument(status) && !status.message().empty(), status.ToString());
}

void Check(ByteSource in) {
  std::vector<std::string> settings(in.Below(4));
  for (std::string& setting : settings) setting = std::string(in.Block());
  const std::string_view alterations = in.Bytes(in.Below(kAlterationBytes));
  auto spec = ParseJobText(std::string(in.Rest()), "input");
  if (!spec.ok()) return;
  for (const std::string& setting : settings) (void)ApplySetting(setting, &*spec);
  ByteSource how(reinterpret_cast<const uint8_t*>(alterations.data()), alterations.size());
  while (!how.empty()) Alter(how, &*spec);
  if (const absl::Status expanded = ExpandJob(&*spec); !expanded.ok()) return CheckError(expanded);
  const auto job = CheckJob(*spec);
  if (!job.ok()) return CheckError(job.status());
  // The resolved job is valid too.
  CAIRN_CHECK(CheckJob(job->spec).ok(), "the resolved job is refused");
  if (const absl::Status fits = CheckJobAgainstData(*job, SmallData()); !fits.ok()) CheckError(fits);
  for (int m = 0; m < job->spec.metrics_size(); ++m)
    CAIRN_CHECK(!MetricName(job->spec, m).empty(), "a metric without a name");
}

}  // namespace
}  // namespace cairn

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cairn::Check({data, size});
  return 0;
}
