// Benches recipes on GPUs by processes that are ranks, which share one where there are fewer. Skipped where
// there is no GPU.
#include <gtest/gtest.h>

#include <fstream>

#include "cli/binary.hpp"
#include "support/assembly_fixture.hpp"
#include "support/temp_folder.hpp"

namespace prun::test::bench_test {
namespace {

namespace fs = std::filesystem;

bool has_gpu() {
  const Recipe recipe = tiny_recipe({"device.plugin=cuda"});
  const auto device = plugins().create<DeviceInterface>("device", recipe.section("device"));
  DeviceInfo info;
  raise(device->info(&info));
  return info.name.view().find("no GPU") == std::string_view::npos;
}

// Returns the program in the folder of this test: a machine with a GPU has no folder to build in.
std::string prun_beside() { return (fs::read_symlink("/proc/self/exe").parent_path() / "prun").string(); }

std::string recipe_file(const std::string& name, std::vector<std::string> sets) {
  const fs::path path = temporary_folder() / (name + ".toml");
  for (const char* const always :
       {"device.plugin=cuda", "device.share=true", "comm.default=ucx", "batch.micro=1", "run.hang_limit=20"})
    sets.emplace_back(always);
  std::ofstream(path)
      << tiny_recipe(sets, "[mesh]\npp = 2\n[[strategy]]\nplugin = \"pipeline\"\n").resolved_toml();
  return path.string();
}

// Exchanges are copied through the host's memory by threads while works wait one by one. Where that stands
// still, ranks say after 20 s which exchange each is in.
TEST(GpuBench, APipelineOverTheHostsMemoryIsTimed) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU on this machine";
  for (const bool large : {false, true}) {
    std::vector<std::string> sets = {"batch.global=8"};
    if (large)
      for (const char* const more : {"model.plugin=llama", "model.layers=8", "model.hidden=1024",
                                     "model.heads=8", "model.seq=1024", "precision.compute=bf16"})
        sets.emplace_back(more);
    const fs::path costs = temporary_folder() / "gpu_costs.json";
    fs::remove(costs);
    const Result result =
        run_program({prun_beside(), "bench", "kernels", recipe_file(large ? "large" : "small", sets),
                     "--no-grid", "--out", costs.string()});
    EXPECT_EQ(result.code, 0) << (large ? "large: " : "small: ") << result.out;
    EXPECT_TRUE(fs::exists(costs)) << result.out;
  }
}

}  // namespace
}  // namespace prun::test::bench_test
