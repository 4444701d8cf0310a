// The CSV loader: any text with any choice of label column and header, with features that are numbers or texts.
//
//   input := header:u8 (0 told from the file, 1 yes, 2 no; 3 to 5 the same of texts) Block(label_column) Rest(file)
#include "tests/fuzz/dataset_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const cairn::FuzzFolder folder;
  cairn::ByteSource in(data, size);
  cairn::v1::Data spec;
  const size_t choice = in.Below(6), header = choice % 3;
  if (header != 0) spec.set_header(header == 1);
  if (choice >= 3) spec.add_inputs()->set_text(true);
  spec.set_label_column(std::string(in.Block()));
  spec.set_format(cairn::v1::Data::CSV);
  spec.set_validation_split(0.25f);
  spec.set_path(folder / "data.csv");
  folder.Write("data.csv", in.Rest());
  cairn::ReadAll(spec, {});
  return 0;
}
