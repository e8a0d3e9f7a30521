// Prints the recipe that a seed draws, for a device and a comm plugin, or says whether a refusal is in order:
// draw_recipe SEED DEVICE COMM [experts]
// draw_recipe --permits MESSAGE      exit code 0 where it is, 1 where it is not
#include <cstdio>
#include <cstdlib>

#include "support/drawn_recipe.hpp"

int main(int count, char** words) {
  using namespace prun::test;
  if (count == 3 && std::string(words[1]) == "--permits") return is_permitted_refusal(words[2]) ? 0 : 1;
  const bool experts = count == 5 && std::string(words[4]) == "experts";
  if (count != 4 && !experts) {
    std::fputs("usage: draw_recipe SEED DEVICE COMM [experts] | draw_recipe --permits MESSAGE\n", stderr);
    return 2;
  }
  const auto seed = static_cast<unsigned>(std::strtoul(words[1], nullptr, 10));
  const std::string device = words[2], own = device == "cpu" ? "threads = 1\npin = false\n" : "";
  const std::string drawn = drawn_recipe(seed, Scale::small);
  std::fputs(drawn_on(experts ? drawn_experts(seed, drawn) : drawn, "plugin = '" + device + "'\n" + own,
                      "default = '" + std::string(words[3]) + "'\n")
                 .c_str(),
             stdout);
}
