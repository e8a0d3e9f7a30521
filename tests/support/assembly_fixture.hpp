// Gives most tests their start: the built plugins, and recipes written as text.
#pragma once

#include <string>
#include <vector>

#include "train/assemble/assembly.hpp"
#include "train/loop/trainer.hpp"

namespace prun::test {

// Returns the plugins of this build.
PluginHost& plugins();

// Returns the CPU device with that many threads.
std::shared_ptr<DeviceInterface> cpu_device(int threads = 2);

// Returns a tiny GPT on random tokens in a temporary folder; `more` is added to its text, `sets` change it.
Recipe tiny_recipe(const std::vector<std::string>& sets = {}, const std::string& more = {});
// Returns the same recipe with other plugins.
Recipe tiny_recipe(const std::vector<std::string>& sets, const std::string& more, PluginHost& plugins);

// Returns the same recipe on samples of which uneven numbers of targets count.
Recipe ragged_recipe(const std::vector<std::string>& sets, const std::string& more);

// Returns what the recipe's model can be planned for: training, evaluation and, unless it sees tokens on both
// sides, making text.
std::vector<Purpose> purposes_of(const Recipe& recipe);

// Returns the text that makes it data-parallel over that many ranks.
std::string data_parallel(int ranks);

// Makes a folder that is removed at exit.
std::filesystem::path temporary_folder();

// Returns all parameters of a rank, or its parts of them, concatenated in registration order, as doubles.
std::vector<double> parameters_of(Trainer& trainer);

// Steps until the end and returns the losses.
std::vector<double> train_steps(Trainer& trainer, int steps);

// Returns losses and parameters of every rank.
std::vector<std::vector<double>> run_ranks(const Recipe& recipe, int steps);

}  // namespace prun::test
