// TF_CONFIG, altered: an error that names the variable, or daemons that can be started.
//
//   input := coordinator:u8 (0 modulo 2: none is named) Block(text) alterations (alter_json.h)
#include "absl/strings/match.h"
#include "client/cli/tf_config.h"
#include "common/base/check.h"
#include "tests/fuzz/alter_json.h"

namespace cairn {
namespace {

void CheckError(const absl::Status& status) {
  CAIRN_CHECK(absl::IsInvalidArgument(status) && absl::StartsWith(status.message(), "TF_CONFIG: "),
              std::string(status.message()));
}

void Check(ByteSource in) {
  TfRunOptions options;
  options.bin_dir = "/bin";
  options.dir = "/data";
  if (in.Below(2) == 1) options.coordinator = "host:1";
  const std::string_view seed = in.Block();
  const absl::StatusOr<TfConfig> config = ParseTfConfig(AlteredJson(in, seed));
  if (!config.ok()) return CheckError(config.status());
  const auto daemons = DaemonsOf(*config, options);
  if (!daemons.ok()) return CheckError(daemons.status());
  CAIRN_CHECK(!daemons->empty(), "a task that runs nothing");
  for (const TfDaemon& daemon : *daemons) {
    CAIRN_CHECK(!daemon.name.empty() && daemon.argv.size() > 1 && daemon.argv[0].starts_with("/bin/cairn-"),
                "a daemon");
    for (const std::string& word : daemon.argv) CAIRN_CHECK(!word.empty(), "an empty word: " + daemon.name);
  }
}

}  // namespace
}  // namespace cairn

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cairn::Check({data, size});
  return 0;
}
