#include "hugging_face/conversion_options.hpp"

#include "base/text.hpp"

namespace prun {
namespace {

std::optional<DType> type_of(const Arguments& arguments) {
  const auto found = arguments.values.find("--type");
  if (found == arguments.values.end()) return {};
  if (found->second == "bf16") return DType::bf16;
  if (found->second == "fp16") return DType::f16;
  if (found->second == "fp32") return DType::f32;
  throw_error(ErrorCode::bad_input, "--type takes bf16, fp16 or fp32, not ", in_quotes(found->second));
}

}  // namespace

Conversion conversion_of(const Arguments& arguments) {
  Conversion how;
  how.from = arguments.words[0];
  how.to = arguments.path("--out").value();
  how.type = type_of(arguments);
  how.file_bytes = arguments.bytes("--file-size", how.file_bytes);
  how.sets = arguments.sets;
  return how;
}

}  // namespace prun
