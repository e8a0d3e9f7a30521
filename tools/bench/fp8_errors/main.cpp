// Measures what products in fp8 do to numbers of a model that has been trained for a while, beside fp32:
//
//   fp8_errors RECIPE [--set KEY=VALUE]... [--steps N] [--sequences N] [--rows N] [--bound X] [--json FILE]
//
// It trains `--steps` steps (20) without fp8. Then
// - it takes one step of these weights on the same samples in fp32, in the recipe's format, and with products
//   in fp8, and compares gradients with those of fp32: cosine and relative error, by layer and by weight.
//   "other samples" is fp32 on the next samples: that is what gradients differ from batch to batch anyway.
// - it takes the factors of all products in fp8 out of a step of `--sequences` sequences (2) on the CPU,
//   where kernels end one by one, and has the recipe's device multiply them by prun's own op. Of `--rows`
//   rows (32) of each result it compares what the device gives with the sum in fp64.
//
// The rounding model: each factor of a product is rounded by itself, e4m3 by 2.6 % in the Frobenius norm and
// e5m2 by 5.2 %, so that a product of two is off by 3.7 %, or 5.8 %, of the root of the sum of its squared
// terms. Where terms agree, the product is larger than that, and what they are off by may agree too: so an
// error is within the model where it is at most `--bound` (0.045) of the larger of the two, and at most 0.01
// of the product beside the product of factors that this program has rounded itself. A wrong scale or layout
// shows as more than 10 %. The exit code is 1 where an error is beyond that.
#include <algorithm>
#include <cstdio>
#include <fstream>

#include "base/machine.hpp"
#include "cli/open_recipe.hpp"
#include "tools/bench/fp8_errors/report.hpp"

namespace {

using namespace prun;
using namespace prun::fp8_errors;

constexpr const char* usage =
    "fp8_errors RECIPE [--set KEY=VALUE]... [--plugin-path FOLDER]... [--steps N] [--sequences N] [--rows N] "
    "[--bound X] [--json FILE]";
constexpr double most_beside_emulated = 0.01;

bool takes_value(const std::string& option) {
  for (const char* known : {"--steps", "--sequences", "--rows", "--bound", "--json"})
    if (option == known) return true;
  return false;
}

Arguments parse(int count, char** words) {
  Arguments arguments;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const bool option = word.starts_with("--");
    if (option && i + 1 == count) throw_error(ErrorCode::bad_input, word, " needs a value: ", usage);
    if (!option)
      arguments.words.push_back(word);
    else if (word == "--set")
      arguments.sets.emplace_back(words[++i]);
    else if (word == "--plugin-path")
      arguments.plugin_paths.emplace_back(words[++i]);
    else if (takes_value(word))
      arguments.values[word] = words[++i];
    else
      throw_error(ErrorCode::bad_input, "there is no option ", word, ": ", usage);
  }
  if (arguments.words.size() != 1) throw_error(ErrorCode::bad_input, "it takes one recipe: ", usage);
  return arguments;
}

Compared beside(const std::string& format, const Step& step, const Step& reference) {
  const auto by = [&](auto name) { return compare(step.gradients, reference.gradients, name); };
  return {format, step.loss, by([](const NamedNumbers& of) { return of.layer; }),
          by([](const NamedNumbers& of) { return of.weight; }),
          by([](const NamedNumbers& of) { return of.layer + "." + of.weight; })};
}

std::vector<Compared> compare_steps(const Recipe& recipe, PluginHost& plugins, const AllNumbers& weights) {
  const std::string own = recipe.text("precision.compute");
  const Recipe fp32 = compared(recipe, plugins, "fp32", false);
  const Step reference = step_of(fp32, plugins, weights);
  std::vector<Compared> steps = {beside("fp32", reference, reference)};
  const auto add = [&](const std::string& format, const Step& step) {
    steps.push_back(beside(format, step, reference));
  };
  if (own != "fp32") add(own, step_of(compared(recipe, plugins, "", false), plugins, weights));
  add("fp8", step_of(compared(recipe, plugins, "", true), plugins, weights));
  add("other samples", step_of(fp32, plugins, weights, 1));
  return steps;
}

// Says whether all products are within the model.
bool are_within(const std::vector<ProductErrors>& products, double bound) {
  const auto beyond = std::count_if(products.begin(), products.end(), [&](const ProductErrors& one) {
    return !(one.larger <= bound && one.emulated <= most_beside_emulated);
  });
  std::printf("\n%zu products, %td beyond the rounding model (%.2f %%)\n", products.size(), beyond,
              100 * bound);
  return beyond == 0;
}

int run(const Arguments& arguments) {
  const std::int64_t steps = arguments.number("--steps", 20), rows = arguments.number("--rows", 32),
                     sequences = arguments.number("--sequences", 2);
  const double bound = arguments.real("--bound", 0.045, 0, 1);
  const Opened opened = open_recipe(arguments, arguments.words[0]);
  const Recipe& recipe = *opened.recipe;
  PluginHost& plugins = *opened.plugins;
  check_recipe(recipe, plugins);
  const Trained trained = train(recipe, plugins, steps);
  print_losses(trained.losses);
  Findings findings{trained.losses, compare_steps(recipe, plugins, trained.weights), {}};
  print(findings.steps);
  const auto device = plugins.create<DeviceInterface>("device", recipe.section("device"));
  findings.products = errors_of(capture(recipe, plugins, trained.weights, sequences), *device, rows);
  print(findings.products);
  if (const auto file = arguments.path("--json")) std::ofstream(*file) << to_json(findings) << "\n";
  return are_within(findings.products, bound) ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  try {
    meet_process_limits();
    return run(parse(count, words));
  } catch (const Error& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "fp8_errors: %s\n", error.what());
    return exit_code(error.code());
  }
}
