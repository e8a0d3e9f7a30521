// Runs that start from weights of others: the loss is theirs, on every layout and however their files are cut
// and their tensors called; what does not fit is refused.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>

#include "hugging_face/hugging_face.hpp"
#include "huggingface/weight_reader.hpp"
#include "support/hugging_face.hpp"
#include "support/layouts.hpp"
#include "support/saved.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::weights_test {
namespace {

namespace fs = std::filesystem;

double first_loss(const Recipe& recipe) {
  const Assembly assembly(recipe, plugins());
  Trainer trainer(assembly, plugins());
  return trainer.step().loss;
}

std::string refusal(const Recipe& recipe) {
  try {
    const Assembly assembly(recipe, plugins());
    open_start_values(assembly, plugins());
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), exit_code(ErrorCode::bad_input));
    return error.what();
  }
  return "accepted";
}

void expect_refusal(const Recipe& recipe, const std::string& part) {
  const std::string said = refusal(recipe);
  EXPECT_NE(said.find(part), std::string::npos) << "wanted: " << part << "\ngot: " << said;
}

class ImportedModel : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(HuggingFace, ImportedModel, testing::ValuesIn(hugging_face_models),
                         [](const auto& model) { return model.param; });

TEST_P(ImportedModel, HasTheLossOfTransformers) {
  EXPECT_NEAR(first_loss(recipe_from(hugging_face(GetParam()), GetParam())) / expected_loss(GetParam()), 1.0,
              1e-5);
}

TEST_P(ImportedModel, StartsAlikeOnEveryLayout) {
  const TempFolder folder;
  import_directory(plugins(), {hugging_face(GetParam()), folder / "imported", {}, {}, {}});
  const Tensors imported = saved_in(folder / "imported");
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(layout.name);
    if (std::string(layout.name) == "zb_v") continue;  // it cuts the model into four, which has less
    std::vector<std::string> sets = with(layout.sets, on_cpu().sets);
    std::erase(sets, "model.dropout=0.1");
    std::erase(sets, "model.hidden=64");
    sets.push_back("run.out=" + (folder / layout.name));
    fs::path saved;
    run_local_ranks(recipe_from(hugging_face(GetParam()), GetParam(), sets, layout.text), plugins().places(),
                    [&](Trainer& trainer) {
                      const fs::path path = trainer.save();
                      if (trainer.assembly().rank() == 0) saved = path;
                    });
    const Tensors tensors = saved_in(saved);
    for (const auto& [name, bytes] : imported) {
      const auto master = tensors.find(name + ".master");
      EXPECT_EQ(master == tensors.end() ? tensors.at(name) : master->second, bytes) << name;
    }
  }
}

// A folder with codes is a folder with the numbers that they stand for.
class Mxfp4Folders {
 public:
  // Widens experts to so many channels, of which rows of `down` have a block of codes for 32 each.
  explicit Mxfp4Folders(std::string which = "model.layers.0.mlp.experts.gate_up_proj", std::int64_t ffn = 8)
      : name(std::move(which)) {
    if (ffn != 8) {
      widen(plain, ffn);
      widen(coded, ffn);
    }
    HuggingFaceFolder::Tensor& numbers = plain.tensors.at(name);
    const std::int64_t matrices = numbers.shape[0], in = numbers.shape[1], out = numbers.shape[2];
    std::mt19937 generator(7);
    std::vector<std::byte> codes(static_cast<std::size_t>(matrices * out * in / 2)),
        scales(static_cast<std::size_t>(matrices * out * in / 32));
    for (std::byte& pair : codes) pair = static_cast<std::byte>(generator() & 255);
    for (std::byte& scale : scales) scale = static_cast<std::byte>(122 + generator() % 6);
    constexpr float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    std::vector<float> all(static_cast<std::size_t>(matrices * in * out));
    for (std::int64_t m = 0; m < matrices; ++m)
      for (std::int64_t o = 0; o < out; ++o)
        for (std::int64_t i = 0; i < in; ++i) {
          const std::int64_t block = (m * out + o) * (in / 32) + i / 32;
          const auto pair =
              std::to_integer<unsigned>(codes[static_cast<std::size_t>(block * 16 + i % 32 / 2)]);
          const unsigned code = i % 2 == 0 ? pair % 16 : pair / 16;
          const float size = std::ldexp(values[code % 8],
                                        std::to_integer<int>(scales[static_cast<std::size_t>(block)]) - 127);
          all[static_cast<std::size_t>((m * in + i) * out + o)] = code < 8 ? size : -size;
        }
    const auto bytes = std::as_bytes(std::span(all));
    numbers.bytes.assign(bytes.begin(), bytes.end());
    coded.tensors.erase(name);
    coded.tensors[name + "_blocks"] = {DType::u8, {matrices, out, in / 32, 16}, codes};
    coded.tensors[name + "_scales"] = {DType::u8, {matrices, out, in / 32}, scales};
    coded.configure("\"hidden_act\"",
                    "\"quantization_config\": {\"quant_method\": \"mxfp4\"}, \"hidden_act\"");
  }

  const std::string name;
  HuggingFaceFolder plain{"gpt_oss"}, coded{"gpt_oss"};

 private:
  static void widen(HuggingFaceFolder& folder, std::int64_t ffn) {
    folder.configure("\"intermediate_size\": 8", "\"intermediate_size\": " + std::to_string(ffn));
    for (auto& [tensor, held] : folder.tensors) {
      const bool up = tensor.find("gate_up_proj") != std::string::npos, down = tensor.ends_with("down_proj");
      if (!up && !down) continue;
      held.shape[up ? held.shape.size() - 1 : 1] = up ? 2 * ffn : ffn;
      held.bytes.assign(element_count(held.shape) * 4, std::byte{0});
    }
  }
  static std::size_t element_count(const std::vector<std::int64_t>& shape) {
    std::size_t count = 1;
    for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
    return count;
  }
};

void expect_codes_are_numbers(const Mxfp4Folders& folders) {
  const TempFolder folder;
  const auto exported = [&](const HuggingFaceFolder& from, const std::string& to) {
    import_directory(plugins(), {from.write(), folder / (to + "-in"), DType::f32, {}, {}});
    export_checkpoint(plugins(), {folder / (to + "-in"), folder / to, {}, 1 << 30, {}});
    return SafetensorsFile(fs::path(folder / to) / "model.safetensors");
  };
  const SafetensorsFile plain = exported(folders.plain, "plain"), coded = exported(folders.coded, "coded");
  for (const SafetensorsEntry& entry : plain.entries())
    EXPECT_EQ(numbers_of<float>(coded, entry.name), numbers_of<float>(plain, entry.name)) << entry.name;
}

// A row of `down` has two and three blocks.
TEST(ForeignWeights, CodesOfMxfp4AreNumbers) {
  const std::string experts = "model.layers.0.mlp.experts.";
  expect_codes_are_numbers(Mxfp4Folders());
  expect_codes_are_numbers(Mxfp4Folders(experts + "down_proj", 64));
  expect_codes_are_numbers(Mxfp4Folders(experts + "down_proj", 96));
  expect_codes_are_numbers(Mxfp4Folders(experts + "gate_up_proj", 64));
}

TEST(ForeignWeights, CodesOfMxfp4OfAnotherShapeAreRefused) {
  Mxfp4Folders folders;
  folders.coded.tensors.at(folders.name + "_scales").bytes[3] = std::byte{255};
  const TempFolder folder;
  const auto said = [&] {
    try {
      import_directory(plugins(), {folders.coded.write(), folder / "in", {}, {}, {}});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(said().find("holds nan"), std::string::npos) << said();
  folders.coded.tensors.at(folders.name + "_blocks").shape = {6, 16, 2, 8};
  EXPECT_NE(said().find("which are no codes of MXFP4 for [6,32,16]"), std::string::npos) << said();
}

// Names without the prefix, buffers that older releases wrote, a head beside the table that it shares.
TEST(ForeignWeights, OlderNamesAndBuffersAreRead) {
  HuggingFaceFolder gpt2("gpt2");
  gpt2.rename("transformer.", "");
  gpt2.tensors["lm_head.weight"] = gpt2.tensors.at("wte.weight");
  gpt2.tensors["h.0.attn.bias"] = {DType::f32, {1, 1, 2, 2}, std::vector<std::byte>(16)};
  gpt2.tensors["h.1.attn.masked_bias"] = {DType::f32, {}, std::vector<std::byte>(4)};
  EXPECT_NEAR(first_loss(recipe_from(gpt2.write(), "gpt2")) / expected_loss("gpt2"), 1.0, 1e-5);
  HuggingFaceFolder llama("llama");
  llama.rename("model.", "");
  llama.tensors["layers.0.self_attn.rotary_emb.inv_freq"] = {DType::f32, {4}, std::vector<std::byte>(16)};
  EXPECT_NEAR(first_loss(recipe_from(llama.write(), "llama")) / expected_loss("llama"), 1.0, 1e-5);
}

// Releases of transformers name the tensors of a model of pictures and texts in two ways.
TEST(ForeignWeights, AModelOfTextsIsReadOutOfOneOfPictures) {
  for (const auto& [whole, alone] :
       {std::pair("gemma3_pictures", "gemma3"), std::pair("mistral3_pictures", "mistral")}) {
    SCOPED_TRACE(whole);
    EXPECT_EQ(plugins().model_options({}, hugging_face(whole)),
              plugins().model_options({}, hugging_face(alone)));
    EXPECT_NEAR(first_loss(recipe_from(hugging_face(whole), alone)) / expected_loss(alone), 1.0, 1e-5);
    HuggingFaceFolder newer(whole);
    newer.rename("language_model.model.", "model.language_model.");
    newer.rename("language_model.lm_head.", "lm_head.");
    newer.rename("vision_tower.", "model.vision_tower.");
    newer.rename("multi_modal_projector.", "model.multi_modal_projector.");
    EXPECT_NEAR(first_loss(recipe_from(newer.write(), alone)) / expected_loss(alone), 1.0, 1e-5);
  }
  HuggingFaceFolder other("gemma3_pictures");
  other.rename("vision_tower.", "sound_tower.");
  expect_refusal(recipe_from(other.write(), "gemma3"), "has no place in the model");
}

// Transformers takes such a head for one that is not tied.
TEST(ForeignWeights, ATiedHeadThatDiffersIsRefused) {
  for (const auto& [model, table] :
       {std::pair("llama_tied", "model.embed_tokens.weight"), std::pair("gpt2", "transformer.wte.weight")}) {
    HuggingFaceFolder folder(model);
    HuggingFaceFolder::Tensor& head = folder.tensors["lm_head.weight"] = folder.tensors.at(table);
    EXPECT_EQ(refusal(recipe_from(folder.write(), model)), "accepted");
    head.bytes[401] ^= std::byte{1};
    expect_refusal(recipe_from(folder.write(), model),
                   std::string("'lm_head.weight' differs from '") + table);
  }
}

// As torch does with padding_idx: nothing comes back through looking it up.
TEST(ForeignWeights, ThePaddingTokensRowLearnsNothingByBeingLookedUp) {
  const auto tokens =
      numbers_of<std::int32_t>(SafetensorsFile(hugging_face("llama") / "expected.safetensors"), "tokens");
  const std::size_t width = 32 * sizeof(float), padding = static_cast<std::size_t>(tokens[3]),
                    other = static_cast<std::size_t>(tokens[4]);
  ASSERT_NE(padding, other);
  const std::string said = "model.pad_token=" + std::to_string(padding);
  for (const auto& [sets, learns] : {std::pair(std::vector<std::string>{}, true), {{said}, false}}) {
    const TempFolder folder;
    std::vector<std::string> all = {"optimizer.weight_decay=0", "run.out=" + (folder / "run")};
    all.insert(all.end(), sets.begin(), sets.end());
    const Assembly assembly(recipe_from(hugging_face("llama"), "llama", all), plugins());
    Trainer trainer(assembly, plugins());
    trainer.step();
    const std::vector<std::byte> after = saved_in(trainer.save()).at("embedding.token"),
                                 before =
                                     HuggingFaceFolder("llama").tensors.at("model.embed_tokens.weight").bytes;
    ASSERT_EQ(after.size(), before.size());
    const auto moved = [&](std::size_t row) {
      return std::memcmp(after.data() + row * width, before.data() + row * width, width) != 0;
    };
    EXPECT_EQ(moved(padding), learns);
    EXPECT_TRUE(moved(other));
  }
}

TEST(ForeignWeights, HalfPrecisionIsReadExactly) {
  HuggingFaceFolder folder("qwen2");
  HuggingFaceFolder::Tensor& norm = folder.tensors.at("model.norm.weight");
  const std::vector<std::uint16_t> halves = {0x3c00, 0xbc00, 0x0001, 0x83ff, 0x7bff, 0x8000, 0x0400, 0x3555};
  const std::vector<float> numbers = {1,     -1,    5.9604645e-8f, -6.0975552e-5f,
                                      65504, -0.0f, 6.1035156e-5f, 0.33325195f};
  std::vector<std::uint16_t> repeated;
  for (int i = 0; i < 32; ++i) repeated.push_back(halves[i % 8]);
  norm.bytes.resize(64);
  std::memcpy(norm.bytes.data(), repeated.data(), 64);
  norm.type = DType::bf16;
  std::string path = folder.write() + "/model.safetensors", text = read_file(path);
  const std::size_t at = text.find("\"BF16\"");
  text.replace(at, 6, "\"F16\" ");
  std::ofstream(path, std::ios::binary) << text;
  const Assembly assembly(recipe_from(fs::path(path).parent_path(), "qwen2"), plugins());
  const auto start = open_start_values(assembly, plugins());
  for (const Id id : assembly.program().parameters())
    if (assembly.program().value(id).name == "norm.gain") {
      std::vector<float> read(32);
      start->read(id, 0, 0, read);
      for (std::size_t i = 0; i < read.size(); ++i)
        EXPECT_EQ(std::bit_cast<std::uint32_t>(read[i]), std::bit_cast<std::uint32_t>(numbers[i % 8])) << i;
    }
}

TEST(ForeignWeights, WhatDoesNotFitIsRefused) {
  HuggingFaceFolder missing("llama");
  missing.tensors.erase("model.layers.1.mlp.up_proj.weight");
  expect_refusal(recipe_from(missing.write(), "llama"), "has no tensor 'model.layers.1.mlp.up_proj.weight'");
  HuggingFaceFolder more("llama");
  more.tensors["model.layers.0.self_attn.q_proj.bias"] = {DType::f32, {32}, std::vector<std::byte>(128)};
  expect_refusal(recipe_from(more.write(), "llama"), "'model.layers.0.self_attn.q_proj.bias' has no place");
  HuggingFaceFolder shape("gpt2");
  shape.tensors.at("transformer.h.0.attn.c_attn.weight").shape = {96, 32};
  expect_refusal(recipe_from(shape.write(), "gpt2"), "is F32[96,32], the model makes it [32,96]");
  HuggingFaceFolder wide("gpt2");
  wide.tensors.at("transformer.ln_f.bias") = {DType::f64, {32}, std::vector<std::byte>(256)};
  expect_refusal(recipe_from(wide.write(), "gpt2"), "is F64[32]; weights are read in F32, BF16 and F16");
}

TEST(ForeignWeights, NumbersThatAreNotFiniteAreRefused) {
  HuggingFaceFolder folder("gpt2");
  const float infinite = INFINITY;
  std::memcpy(folder.tensors.at("transformer.h.1.mlp.c_fc.weight").bytes.data() + 4 * 129, &infinite, 4);
  const Assembly assembly(recipe_from(folder.write(), "gpt2"), plugins());
  try {
    const Trainer trainer(assembly, plugins());
    FAIL() << "trained on an infinite weight";
  } catch (const Error& error) {
    EXPECT_NE(
        std::string(error.what()).find("tensor 'transformer.h.1.mlp.c_fc.weight' holds inf at element 129"),
        std::string::npos)
        << error.what();
  }
}

// Weights in another model than theirs compute something else.
TEST(ForeignWeights, AnotherModelThanTheirsIsRefusedUnlessMeant) {
  const fs::path llama = hugging_face("llama");
  expect_refusal(
      recipe_from(llama, "llama", {"model.rope_base=10000"}),
      "weights of " + llama.string() + " with model.rope_base = 10000.0: they were trained with 500.0");
  EXPECT_EQ(
      refusal(recipe_from(llama, "llama", {"model.rope_base=10000", "run.allow_changed=model.rope_base"})),
      "accepted");
  EXPECT_EQ(refusal(recipe_from(hugging_face("qwen2"), "llama", {"model.head_dim=8"})), "accepted");
}

// What a strategy adds is in nobody's folder; all else of the model must be.
TEST(ForeignWeights, WhatAStrategyAddsStartsFromTheSeedWhereThatIsAskedFor) {
  const std::string adapter = "[[strategy]]\nplugin = 'adapter'\n";
  const std::string asked = "run.allow_changed=strategy.0.plugin";
  const TempFolder folder;
  import_directory(plugins(), {hugging_face("llama"), folder / "imported", {}, {}, {}});
  for (const fs::path& from : {hugging_face("llama"), fs::path(folder / "imported")}) {
    const auto recipe = [&](std::vector<std::string> sets) {
      if (from == folder / "imported")
        for (const auto& [key, value] : read_manifest(from).recipe)
          if (key.starts_with("model.") && key != "model.seq") sets.push_back(key + "=" + value);
      return recipe_from(from, "llama", sets, adapter);
    };
    expect_refusal(recipe({}),
                   "which strategy 'adapter' adds to the model; if it is to start from the seed, add "
                   "--set " +
                       asked);
    EXPECT_EQ(refusal(recipe({asked})), "accepted");
    EXPECT_NEAR(first_loss(recipe({asked})) / expected_loss("llama"), 1.0, 1e-5);
  }
  HuggingFaceFolder missing("llama");
  missing.tensors.erase("model.layers.1.mlp.up_proj.weight");
  expect_refusal(recipe_from(missing.write(), "llama", {asked}, adapter),
                 "has no tensor 'model.layers.1.mlp.up_proj.weight'");
}

TEST(ForeignWeights, FoldersThatHoldNoneAreRefused) {
  const auto refused = [](const TempFolder& folder) {
    folder.write("config.json", read_file((hugging_face("gpt2") / "config.json").string()));
    return refusal(recipe_from(folder.path(), "gpt2"));
  };
  const auto expect = [](const std::string& said, const char* part) {
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  const TempFolder empty, pickled, elsewhere, absent, damaged;
  expect(refused(empty), "has neither model.safetensors nor model.safetensors.index.json");
  pickled.write("pytorch_model.bin", "x");
  expect(refused(pickled), "may run code when they are read: save them as safetensors");
  elsewhere.write(weights_index_name, R"({"weight_map": {"a": "../model.safetensors"}})");
  expect(refused(elsewhere), "which is no name of a file in this folder");
  absent.write(weights_index_name, R"({"weight_map": {"a": "model-1.safetensors"}})");
  expect(refused(absent), "model-1.safetensors");
  damaged.write(weights_index_name, R"({"weight_map": {"a": )");
  expect(refused(damaged), "model.safetensors.index.json: byte 21: ");
  const TempFolder nothing;
  expect_refusal(recipe_from(nothing.path(), "gpt2", {"model.plugin=gpt"}), "holds no checkpoint");
}

// ------------------------------------------------------------------- memory

// A model of zeros, whose files take no room on the disk, cut into files as large ones are.
class LargeModel {
 public:
  static constexpr int layers = 16;

  LargeModel() {
    folder_.write("config.json",
                  R"({"model_type":"llama","num_hidden_layers":16,"hidden_size":512,"num_attention_heads":4,)"
                  R"("intermediate_size":2048,"vocab_size":1024,"max_position_embeddings":64})");
    std::string map;
    add("model-0.safetensors",
        {{"model.embed_tokens.weight", {1024, 512}},
         {"model.norm.weight", {512}},
         {"lm_head.weight", {1024, 512}}},
        map);
    for (int i = 0; i < layers; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      add("model-" + std::to_string(i + 1) + ".safetensors",
          {{layer + "input_layernorm.weight", {512}},
           {layer + "post_attention_layernorm.weight", {512}},
           {layer + "self_attn.q_proj.weight", {512, 512}},
           {layer + "self_attn.k_proj.weight", {512, 512}},
           {layer + "self_attn.v_proj.weight", {512, 512}},
           {layer + "self_attn.o_proj.weight", {512, 512}},
           {layer + "mlp.gate_proj.weight", {2048, 512}},
           {layer + "mlp.up_proj.weight", {2048, 512}},
           {layer + "mlp.down_proj.weight", {512, 2048}}},
          map);
    }
    folder_.write(weights_index_name, "{\"weight_map\":{" + map.substr(1) + "}}");
  }

  std::string path() const { return folder_.path(); }
  std::int64_t bytes() const { return bytes_; }

 private:
  void add(const std::string& file,
           const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& tensors, std::string& map) {
    std::string header = "{";
    std::int64_t at = 0;
    for (const auto& [name, shape] : tensors) {
      std::int64_t bytes = 4;
      for (const std::int64_t extent : shape) bytes *= extent;
      header += (at > 0 ? "," : "") + ("\"" + name + R"(":{"dtype":"F32","shape":[)") +
                std::to_string(shape[0]) + (shape.size() > 1 ? "," + std::to_string(shape[1]) : "") +
                R"(],"data_offsets":[)" + std::to_string(at) + "," + std::to_string(at + bytes) + "]}";
      at += bytes;
      map += ",\"" + name + "\":\"" + file + "\"";
    }
    header += "}";
    std::string length(8, '\0');
    for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
    const std::string path = folder_.write(file, length + header);
    fs::resize_file(path, 8 + header.size() + static_cast<std::size_t>(at));
    bytes_ += at;
  }

  TempFolder folder_;
  std::int64_t bytes_ = 0;
};

// Bytes of memory that only this process has and can write: what a limit on data counts.
std::int64_t own_memory() {
  std::ifstream status("/proc/self/status");
  std::int64_t kilobytes = 0;
  for (std::string word; status >> word;)
    if (word == "VmData:") status >> kilobytes;
  return kilobytes * 1024;
}

// Runs body in a process that may take so much more memory; whether it came to its end.
template <class Body>
bool fits(std::int64_t more, Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    const auto most = static_cast<rlim_t>(own_memory() + more);
    const rlimit limit{most, most};
    if (setrlimit(RLIMIT_DATA, &limit) != 0) _exit(3);
    try {
      body();
    } catch (const std::exception&) {
      _exit(2);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

constexpr std::int64_t mebibyte = 1 << 20;

// Of a file, of what this process has in memory.
std::int64_t resident_of(const std::string& folder) {
  std::ifstream maps("/proc/self/smaps");
  std::int64_t kilobytes = 0;
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find('-') < line.find(' ')) inside = line.find(folder) != std::string::npos;
    if (inside && line.starts_with("Rss:")) kilobytes += std::stoll(line.substr(4));
  }
  return kilobytes * 1024;
}

// But for headers: pages that were read would count as the process's beside its plan.
TEST(ForeignWeights, PagesThatWereReadAreLetGo) {
  const LargeModel model;
  const Recipe recipe = recipe_from(model.path(), "gpt2", {"device.threads=1"});
  const Assembly assembly(recipe, plugins());
  const std::unique_ptr<StartValues> start = open_start_values(assembly, plugins());
  const Program& program = assembly.program();
  std::vector<float> values;
  for (const Id parameter : program.parameters()) {
    values.resize(static_cast<std::size_t>(program.value(parameter).elements()));
    start->read(parameter, 0, 0, values);
  }
  const std::string folder = fs::canonical(model.path()).string();
  EXPECT_LT(resident_of(folder), mebibyte);
  // So it would have been seen.
  const SafetensorsFile file(fs::path(folder) / "model-0.safetensors");
  const std::span<const std::byte> kept = file.bytes("model.embed_tokens.weight");
  EXPECT_EQ(std::count(kept.begin(), kept.end(), std::byte{1}), 0);
  EXPECT_GE(resident_of(folder), static_cast<std::int64_t>(kept.size()));
}

// A rank of sixteen that keep everything in parts, beside the memory of its plan: two layers together come to
// 33 MiB.
TEST(ForeignWeights, ARankNeedsNoMemoryForTheOthersParts) {
  const LargeModel model;
  const std::string zero = data_parallel(16) + "[[strategy]]\nplugin = 'zero'\nstage = 3\n";
  const Recipe recipe =
      recipe_from(model.path(), "gpt2",
                  {"optimizer.plugin=sgd", "batch.global=16", "batch.micro=1", "device.threads=1"}, zero);
  const Assembly assembly(recipe, plugins(), 3);
  const std::int64_t stacks = 64 * mebibyte;  // of the queues' threads, which count as well
  const std::int64_t room = assembly.plan().layout.memory.total() + stacks + 16 * mebibyte;
  ASSERT_GT(model.bytes(), 260 * mebibyte);
  ASSERT_LT(room, model.bytes() * 4 / 5);
  EXPECT_TRUE(fits(room, [&] {
    Membership alone;
    alone.alone = true;
    const Trainer trainer(assembly, plugins(), alone);
  }));
}

TEST(ForeignWeights, AnImportHoldsOneTensorAtATime) {
  const LargeModel model;
  const TempFolder folder;
  EXPECT_TRUE(fits(48 * mebibyte, [&] {
    import_directory(plugins(), {model.path(), folder / "imported", DType::bf16, {}, {}});
  }));
  EXPECT_GT(fs::file_size(folder / "imported/rank-00000.safetensors"), 130 * mebibyte);
  EXPECT_TRUE(fits(96 * mebibyte, [&] {
    export_checkpoint(plugins(), {folder / "imported", folder / "out", {}, 40 * mebibyte, {}});
  }));
}

}  // namespace
}  // namespace prun::test::weights_test
