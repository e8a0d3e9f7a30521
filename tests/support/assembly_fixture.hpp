// What most tests start from: the built plugins, and recipes written as text.
#pragma once

#include <string>
#include <vector>

#include "train/assemble/assembly.hpp"
#include "train/loop/trainer.hpp"

namespace prun::test {

// The plugins of this build.
PluginHost& plugins();

// The CPU device with that many threads.
std::shared_ptr<DeviceInterface> cpu_device(int threads = 2);

// A tiny GPT on a file of random tokens in a temporary folder; `more` is added to its text, `sets` change it.
Recipe tiny_recipe(const std::vector<std::string>& sets = {}, const std::string& more = {});
// The same, of other plugins.
Recipe tiny_recipe(const std::vector<std::string>& sets, const std::string& more, PluginHost& plugins);

// The same on samples of which uneven numbers of targets count.
Recipe ragged_recipe(const std::vector<std::string>& sets, const std::string& more);

// What makes it data-parallel over that many ranks.
std::string data_parallel(int ranks);

// A folder that is removed at exit.
std::filesystem::path temporary_folder();

// All parameters of a rank, or its parts of them, concatenated in registration order, as doubles.
std::vector<double> parameters_of(Trainer& trainer);

// Steps until the end; returns the losses.
std::vector<double> train_steps(Trainer& trainer, int steps);

// Losses and parameters of every rank.
std::vector<std::vector<double>> run_ranks(const Recipe& recipe, int steps);

}  // namespace prun::test
