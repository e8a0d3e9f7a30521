// Lists the folders of Hugging Face among the fixtures, and makes recipes that start from them, also with
// changes.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/safetensors.hpp"
#include "support/assembly_fixture.hpp"
#include "support/temp_folder.hpp"
#include "support/token_file.hpp"

namespace prun::test {

// These models generate text.
inline const std::vector<std::string> text_models = {"gpt2",
                                                     "llama",
                                                     "llama_tied",
                                                     "qwen2",
                                                     "smollm",
                                                     "qwen2_window",
                                                     "qwen3",
                                                     "mistral",
                                                     "gemma3",
                                                     "olmo2",
                                                     "phi3",
                                                     "mixtral",
                                                     "olmoe",
                                                     "qwen2_moe",
                                                     "qwen3_moe",
                                                     "dots1",
                                                     "deepseek2",
                                                     "deepseek2_groups",
                                                     "deepseek3",
                                                     "gemma",
                                                     "ministral",
                                                     "cwm",
                                                     "seed_oss",
                                                     "internlm3",
                                                     "smollm3",
                                                     "granite",
                                                     "hunyuan",
                                                     "exaone4",
                                                     "olmo3",
                                                     "flex_olmo",
                                                     "glm4_moe_lite",
                                                     "youtu",
                                                     "solar_open",
                                                     "exaone_moe",
                                                     "sarvam_mla",
                                                     "iquestcoder",
                                                     "llama_biases",
                                                     "ministral3",
                                                     "ernie4_5",
                                                     "glm",
                                                     "glm4",
                                                     "glm4_moe",
                                                     "glm4_moe_air",
                                                     "minimax_m2",
                                                     "phi3_partial",
                                                     "qwen3_next",
                                                     "qwen3_next_dense",
                                                     "qwen3_5",
                                                     "qwen3_5_moe",
                                                     "gemma2",
                                                     "vaultgemma",
                                                     "gpt_oss",
                                                     "phi3_long",
                                                     "phi3_short",
                                                     "glm_yarn"};
// These models predict masked tokens.
inline const std::vector<std::string> masked_models = {"bert", "bert_tanh", "modernbert"};
inline const std::vector<std::string> hugging_face_models = [] {
  std::vector<std::string> all = text_models;
  all.insert(all.end(), masked_models.begin(), masked_models.end());
  all.emplace_back("t5");  // it writes the spans that are cut out of a text
  return all;
}();
// PyTorch has trained these as well.
inline const std::vector<std::string> trained_models(hugging_face_models.begin() + 4,
                                                     hugging_face_models.end());

// Returns what a recipe says of data for one of them, as its fixture was made.
inline std::vector<std::string> data_of(const std::string& model) {
  if (model == "t5") return {"data.spans=0.3", "data.span_length=2", "data.span_token=63", "model.inputs=15"};
  if (std::find(masked_models.begin(), masked_models.end(), model) == masked_models.end()) return {};
  if (model == "modernbert") return {"data.mask=0.4", "data.mask_token=63", "data.mask_never=[0, 1]"};
  return {"data.mask=0.4", "data.mask_token=63", "data.mask_never=[0, 1]", "model.separator=1"};
}

inline std::filesystem::path hugging_face(const std::string& model) {
  return std::filesystem::path(PRUN_TEST_FIXTURES) / "hugging_face" / model;
}

template <class T>
std::vector<T> numbers_of(const SafetensorsFile& file, const std::string& tensor) {
  const auto bytes = file.bytes(tensor);
  std::vector<T> numbers(bytes.size() / sizeof(T));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

// Returns the loss that transformers has for the fixture's two sequences.
inline double expected_loss(const std::string& model) {
  return numbers_of<double>(SafetensorsFile(hugging_face(model) / "expected.safetensors"), "loss").at(0);
}

// Transformers has added the last `greedy_tokens` of a text in fp32, always the likeliest one.
constexpr std::int64_t greedy_tokens = 32;
inline std::vector<std::int32_t> greedy_text(const std::string& model) {
  return numbers_of<std::int32_t>(SafetensorsFile(hugging_face(model) / "expected.safetensors"), "text");
}

// Returns a recipe that names of its model only where it starts from, on the fixture's two sequences.
inline Recipe recipe_from(const std::filesystem::path& init, const std::string& tokens_of,
                          std::vector<std::string> sets = {}, const std::string& layout = {}) {
  const SafetensorsFile expected(hugging_face(tokens_of) / "expected.safetensors");
  const std::string tokens =
      write_tokens(temporary_folder() / (tokens_of + ".bin"), numbers_of<std::int32_t>(expected, "tokens"))
          .string();
  sets.insert(sets.begin(), {"device.plugin=cpu", "data.path=" + tokens, "model.init=" + init.string(),
                             "run.out=" + (temporary_folder() / "run").string(), "run.fresh=true"});
  const std::vector<std::string> data = data_of(tokens_of);
  sets.insert(sets.begin(), data.begin(), data.end());
  const std::string text =
      "[run]\nname = 'from'\nsteps = 20\n[model]\nseq = 24\n[data]\nplugin = 'tokens'\npath = ''\nshuffle = "
      "false\n"
      "[batch]\nglobal = 2\nmicro = 2\n[optimizer]\nplugin = 'adamw'\nlr = 3e-3\n[[observer]]\nplugin = "
      "'jsonl'\n";
  return Recipe::parse(text + layout, "from.toml", sets, plugins().catalog());
}

// Copies a fixture whose tensors and config.json a test changes.
class HuggingFaceFolder {
 public:
  explicit HuggingFaceFolder(const std::string& model)
      : config(read_file((hugging_face(model) / "config.json").string())) {
    const SafetensorsFile file(hugging_face(model) / "model.safetensors");
    for (const SafetensorsEntry& entry : file.entries())
      tensors[entry.name] = {*to_dtype(entry.type), entry.shape,
                             std::vector<std::byte>(file.bytes(entry).begin(), file.bytes(entry).end())};
  }

  struct Tensor {
    DType type;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
  };
  std::map<std::string, Tensor> tensors;
  std::string config;

  void rename(const std::string& from, const std::string& to) {
    std::map<std::string, Tensor> renamed;
    for (auto& [name, tensor] : tensors)
      renamed[name.starts_with(from) ? to + name.substr(from.size()) : name] = tensor;
    tensors = std::move(renamed);
  }
  // Replaces `text` of config.json, which must be there, by `other`.
  void configure(const std::string& text, const std::string& other) {
    const std::size_t at = config.find(text);
    if (at == std::string::npos) throw std::runtime_error(text + " is not in config.json");
    config.replace(at, text.size(), other);
  }

  std::string write() const {
    folder_.write("config.json", config);
    std::vector<SafetensorsSpec> specs;
    for (const auto& [name, tensor] : tensors) specs.push_back({name, tensor.type, tensor.shape});
    SafetensorsWriter writer(folder_ / "model.safetensors", specs);
    for (const SafetensorsSpec& spec : writer.order()) writer.write(spec.name, tensors.at(spec.name).bytes);
    writer.finish();
    return folder_.path();
  }

 private:
  TempFolder folder_;
};

}  // namespace prun::test
