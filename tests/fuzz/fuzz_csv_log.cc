// A CSVLogger's file that was there before: of another program, or cut short by a kill. The epochs are in it once, also
// if a second worker writes them.
//
//   input := append:u8 (modulo 2) later:u8 (modulo 2: the file was last written before the job was submitted)
//            first:u8 (modulo 3: the first epoch that is written) Rest(the file)
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "tests/fuzz/input.h"
#include "worker/reports/csv_log.h"

namespace cairn {
namespace {

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void Check(ByteSource in) {
  static const FuzzFolder folder;
  v1::JobSpec spec;
  spec.mutable_loss()->set_kind(v1::Loss::MEAN_SQUARED_ERROR);
  v1::CsvLogger options;
  options.set_filename(folder / "log.csv");
  options.set_separator(",");
  options.set_append(in.Below(2) == 1);
  const bool later = in.Below(2) == 1;
  const int first = static_cast<int>(in.Below(3));
  std::vector<v1::EpochResult> epochs(2);
  for (int i = 0; i < 2; ++i) {
    epochs[static_cast<size_t>(i)].set_epoch(first + i);
    epochs[static_cast<size_t>(i)].mutable_train()->set_examples(4);
    epochs[static_cast<size_t>(i)].mutable_train()->set_loss(1 + i);
  }
  const std::string before(in.Rest());
  folder.Write("log.csv", before);
  CsvLog log(spec, options, later ? absl::InfiniteFuture() : absl::InfinitePast());
  MustBeOk(log.Write(epochs));
  const std::string written = Read(options.filename());
  CAIRN_CHECK(written.ends_with("\n"), "the last line is not whole");
  for (int i = 0; i < 2; ++i) {  // the figures of the second epoch are twice those of the first
    const std::string row = absl::StrCat(first + i, ",", i == 0 ? "0.25" : "0.5", "\r\n");
    const size_t at = written.rfind(row);
    CAIRN_CHECK(first > 0 || (at != std::string::npos && (at == 0 || written[at - 1] == '\n')), "a row is missing");
  }
  const std::string lines = before.substr(0, before.rfind('\n') + 1);
  CAIRN_CHECK(!options.append() || written.starts_with(lines), "what was there is gone");
  CAIRN_CHECK(!later || options.append() || first > 0 || written == "epoch,loss\r\n0,0.25\r\n1,0.5\r\n",
              "another job's file is not begun anew");
  MustBeOk(log.Write(epochs));
  if (later) return;  // the file may be another job's again
  CAIRN_CHECK(Read(options.filename()) == written, "written twice");
  MustBeOk(CsvLog(spec, options, absl::InfinitePast()).Write(epochs));
  CAIRN_CHECK(Read(options.filename()) == written, "written by two workers");
}

}  // namespace
}  // namespace cairn

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cairn::Check({data, size});
  return 0;
}
