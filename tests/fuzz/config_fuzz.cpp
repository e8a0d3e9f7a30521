// Fuzz entry for a model's config.json: it is either refused with bad_input, or each model makes options of
// it that are written as a text which reads.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "gpt/gpt.hpp"
#include "huggingface/config.hpp"
#include "llama/llama.hpp"

namespace {

template <class Model>
void try_model(const prun::ConfigFile& config) {
  try {
    prun::ConfigValues values;
    prun::ConfigWriter writer(prun::writer_to(values));
    Model::read_config(prun::Options(config.api()), writer);
    prun::parse_json(prun::config_text(values), "written");
  } catch (const prun::Error& error) {
    if (error.code() != prun::ErrorCode::bad_input) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const prun::ConfigFile config({reinterpret_cast<const char*>(data), size}, "fuzz");
    try_model<prun::Gpt>(config);
    try_model<prun::Llama>(config);
  } catch (const prun::Error& error) {
    if (error.code() != prun::ErrorCode::bad_input) std::abort();
  }
  return 0;
}
