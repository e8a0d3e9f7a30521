#include "support/assembly_fixture.hpp"

#include <unistd.h>

#include <cstring>
#include <fstream>

#include "base/random.hpp"
#include "execute/plan_memory.hpp"
#include "support/token_file.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test {

namespace fs = std::filesystem;

PluginHost& plugins() {
  // The plugins lie beside the program, wherever the build's folder was carried.
  static const fs::path folder =
      fs::read_symlink("/proc/self/exe").parent_path().parent_path() / PRUN_TEST_PLUGIN_FOLDER;
  static PluginHost host(std::vector<SearchPlace>{{folder, "the build"}, {folder / "test", "the tests"}});
  return host;
}

std::filesystem::path temporary_folder() {
  // A process that was forked leaves the folder alone.
  struct Folder {
    std::string path = (fs::temp_directory_path() / "prun-test-XXXXXX").string();
    const pid_t owner = ::getpid();
    Folder() {
      if (!::mkdtemp(path.data())) throw_error(ErrorCode::storage, "cannot make ", path);
    }
    ~Folder() {
      std::error_code ignored;
      if (::getpid() == owner) fs::remove_all(path, ignored);
    }
  };
  static const Folder folder;
  return folder.path;
}

namespace {

fs::path random_tokens() {
  const fs::path path = temporary_folder() / "tokens.bin";
  if (fs::exists(path)) return path;
  std::vector<std::int32_t> tokens(20000);
  const RandomStream stream(1, stream_id("tokens"));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = i == 0 ? 0 : (tokens[i - 1] * 5 + 3 + static_cast<std::int32_t>(stream.bits32(i) % 4)) % 61;
  return write_tokens(path, tokens);
}

constexpr const char* tiny_text = R"(
[run]
name = "tiny"
steps = 20
[model]
plugin = "gpt"
layers = 2
hidden = 32
heads = 4
seq = 16
vocab = 64
[batch]
global = 4
micro = 4
[optimizer]
plugin = "adamw"
lr = 3e-3
clip = 1.0
[[observer]]
plugin = "jsonl"
)";

}  // namespace

std::shared_ptr<DeviceInterface> cpu_device(int threads) {
  const Recipe recipe = tiny_recipe({"device.threads=" + std::to_string(threads)});
  return plugins().create<DeviceInterface>("device", recipe.section("device"));
}

std::vector<Purpose> purposes_of(const Recipe& recipe) {
  const std::string model = recipe.section("model").plugin();
  if (model == "bert") return {Purpose::training, Purpose::evaluation};
  return {Purpose::training, Purpose::evaluation, Purpose::generation};
}

std::string data_parallel(int ranks) {
  return "[mesh]\ndp = " + std::to_string(ranks) + "\n[[strategy]]\nplugin = \"data\"\naxis = \"dp\"\n";
}

Recipe tiny_recipe(const std::vector<std::string>& sets, const std::string& more) {
  return tiny_recipe(sets, more, plugins());
}

Recipe tiny_recipe(const std::vector<std::string>& sets, const std::string& more, PluginHost& host) {
  std::vector<std::string> all = {"device.plugin=cpu", "data.path=" + random_tokens().string(),
                                  "run.out=" + (temporary_folder() / "run").string(), "run.fresh=true"};
  all.insert(all.end(), sets.begin(), sets.end());
  const std::string data = "[data]\nplugin = \"tokens\"\npath = \"data\"\n";
  return Recipe::parse(tiny_text + data + more, "tiny.toml", all, host.catalog());
}

Recipe ragged_recipe(const std::vector<std::string>& sets, const std::string& more) {
  std::vector<std::string> all = {"device.plugin=cpu"};
  all.insert(all.end(), sets.begin(), sets.end());
  return Recipe::parse(tiny_text + ("[data]\nplugin = \"ragged\"\n" + more), "ragged.toml", all,
                       plugins().catalog());
}

std::vector<double> parameters_of(Trainer& trainer) {
  std::vector<double> all;
  const Assembly& assembly = trainer.assembly();
  const auto add = [&](const HeldRun& run) {
    const std::vector<std::byte> bytes = run.read(trainer.memory());
    for (std::int64_t i = 0; i < run.count; ++i) {
      if (run.type == DType::f64)
        all.push_back(reinterpret_cast<const double*>(bytes.data())[i]);
      else if (run.type == DType::f32)
        all.push_back(reinterpret_cast<const float*>(bytes.data())[i]);
      else if (run.type == DType::f16)
        all.push_back(reinterpret_cast<const f16*>(bytes.data())[i]);
      else
        all.push_back(reinterpret_cast<const bf16*>(bytes.data())[i]);
    }
  };
  assembly.each_parameter([&](Id id, std::int32_t instance) {
    each_held(assembly.program(), assembly.rank(), id, instance, Kept::parameter, add);
  });
  return all;
}

std::vector<double> train_steps(Trainer& trainer, int steps) {
  std::vector<double> losses;
  trainer.run(steps, [&](const StepResult& result) { losses.push_back(result.loss); });
  return losses;
}

std::vector<std::vector<double>> run_ranks(const Recipe& recipe, int steps) {
  std::vector<std::vector<double>> results(static_cast<std::size_t>(mesh_of(recipe).world()));
  run_local_ranks(recipe, plugins().places(), [&](Trainer& trainer) {
    std::vector<double> numbers = train_steps(trainer, steps);
    const std::vector<double> parameters = parameters_of(trainer);
    numbers.insert(numbers.end(), parameters.begin(), parameters.end());
    results[static_cast<std::size_t>(trainer.assembly().rank())] = std::move(numbers);
  });
  return results;
}

}  // namespace prun::test
