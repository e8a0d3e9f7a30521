#include "train/assemble/precision_of.hpp"

namespace prun {
namespace {

DType dtype_named(const std::string& name) {
  for (DType t : {DType::f64, DType::f32, DType::bf16, DType::f16})
    if (name == name_of(t)) return t;
  throw_error(ErrorCode::internal, "no number format '", name, "'");
}

// Returns the bits of the codes that numbers travel in; 0 if they travel uncoded.
std::int64_t bits_of(const std::string& format) {
  return format == "int8" || format == "fp8" ? 8 : format == "int4" ? 4 : format == "1bit" ? 1 : 0;
}

}  // namespace

Precision precision_of(const Recipe& recipe) {
  const DType state = dtype_named(recipe.text("precision.state"));
  const auto kept = [&](const char* key, DType otherwise) {
    const std::string& name = recipe.text(key);
    return name == "state" || bits_of(name) > 0 ? otherwise
           : name == "split" || name == "8bit"  ? DType::f32
                                                : dtype_named(name);
  };
  Precision precision;
  precision.compute = dtype_named(recipe.text("precision.compute"));
  precision.master = kept("precision.master", state);
  precision.moments = kept("precision.moments", state);
  precision.gradient = kept("precision.gradient", state);
  precision.reduce = kept("precision.reduce", precision.gradient);
  precision.reduce_bits = bits_of(recipe.text("precision.reduce"));
  precision.gather_bits = bits_of(recipe.text("precision.gather"));
  precision.gather_fp8 = recipe.text("precision.gather") == "fp8";
  precision.split = recipe.text("precision.master") == "split";
  precision.eight_bits = recipe.text("precision.moments") == "8bit";
  precision.weight_codes = recipe.text("precision.weight_codes") == "step";
  return precision;
}

}  // namespace prun
