// Who a process is, from each launcher's variables, as they are written by the launchers themselves.
#include "launch/identity.hpp"

#include <gtest/gtest.h>

#include <map>

#include "prun/error.hpp"

namespace prun::identity_test {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<Identity> identify(const Variables& variables) {
  return identity_from_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return {};
    return found->second;
  });
}

std::string refusal(const Variables& variables) {
  try {
    identify(variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    return error.what();
  }
  return "accepted";
}

Variables with(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

const Variables torchrun = {{"RANK", "3"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "2"},
                            {"MASTER_ADDR", "node7"},
                            {"MASTER_PORT", "29500"}};
const Variables srun = {{"SLURM_PROCID", "5"},
                        {"SLURM_NTASKS", "7"},
                        {"SLURM_LOCALID", "1"},
                        {"SLURM_STEP_ID", "0"},
                        {"SLURM_NODEID", "2"},
                        {"SLURM_STEP_TASKS_PER_NODE", "2(x2),3"},
                        {"SLURM_JOB_ID", "917"},
                        {"SLURM_STEP_NODELIST", "gpu[09-11,20]-ib,login"},
                        {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"}};
const Variables mpirun = {{"OMPI_COMM_WORLD_RANK", "1"},
                          {"OMPI_COMM_WORLD_SIZE", "2"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Variables own = {
    {"PRUN_RANK", "1"}, {"PRUN_WORLD", "4"}, {"PRUN_LOCAL_RANK", "1"}, {"PRUN_LOCAL_WORLD", "4"}};

TEST(Identity, ReadsItsOwnLauncher) {
  const auto who = identify(own);
  ASSERT_TRUE(who);
  EXPECT_EQ(who->rank, 1);
  EXPECT_EQ(who->world, 4);
  EXPECT_EQ(who->how, "prun");
  EXPECT_TRUE(who->one_host());
}

TEST(Identity, ReadsTorchrunAndLeavesItsPortToItsStore) {
  const auto who = identify(torchrun);
  ASSERT_TRUE(who);
  EXPECT_EQ(who->rank, 3);
  EXPECT_EQ(who->world, 8);
  EXPECT_EQ(who->local_rank, 1);
  EXPECT_EQ(who->local_world, 2);
  EXPECT_EQ(who->how, "torchrun");
  EXPECT_EQ(who->master_host, "node7");
  EXPECT_EQ(who->master_port, 29517);
  EXPECT_EQ(identify(with(torchrun, {{"MASTER_PORT", "65530"}}))->master_port, 65513);
  EXPECT_EQ(identify(with(torchrun, {{"PRUN_MASTER_PORT", "4000"}}))->master_port, 4000);
}

TEST(Identity, ReadsSrunAndFindsTheFirstHost) {
  const auto who = identify(srun);
  ASSERT_TRUE(who);
  EXPECT_EQ(who->rank, 5);
  EXPECT_EQ(who->world, 7);
  EXPECT_EQ(who->local_rank, 1);
  EXPECT_EQ(who->local_world, 3);
  EXPECT_EQ(who->how, "srun");
  EXPECT_EQ(who->master_host, "gpu09-ib");
  const auto other_job = identify(with(srun, {{"SLURM_JOB_ID", "918"}}));
  EXPECT_NE(who->master_port, other_job->master_port);
  EXPECT_EQ(identify(with(srun, {{"PRUN_MASTER", "10.1.1.1"}}))->master_host, "10.1.1.1");
}

TEST(Identity, AnAllocationOrAStepOfOneTaskIsNoLaunch) {
  Variables allocation = srun;
  allocation.erase("SLURM_STEP_ID");
  EXPECT_FALSE(identify(allocation));
  EXPECT_FALSE(identify(with(srun, {{"SLURM_STEP_NUM_TASKS", "1"}})));
  EXPECT_FALSE(identify({}));
  EXPECT_FALSE(identify({{"RANK", "3"}}));
}

TEST(Identity, ReadsMpirun) {
  const auto who = identify(mpirun);
  ASSERT_TRUE(who);
  EXPECT_EQ(who->rank, 1);
  EXPECT_EQ(who->world, 2);
  EXPECT_EQ(who->how, "mpirun");
  EXPECT_EQ(who->master_host, "127.0.0.1");
  EXPECT_NE(refusal(with(mpirun, {{"OMPI_COMM_WORLD_SIZE", "4"}})).find("set PRUN_MASTER"),
            std::string::npos);
}

TEST(Identity, ReadsThePodsOfAPyTorchJob) {
  const Variables pod = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}};
  const auto who = identify(pod);
  ASSERT_TRUE(who);
  EXPECT_EQ(who->rank, 1);
  EXPECT_EQ(who->world, 2);
  EXPECT_EQ(who->local_rank, 0);
  EXPECT_EQ(who->local_world, 1);
  EXPECT_EQ(who->how, "kubernetes");
  EXPECT_EQ(who->master_host, "job-master-0");
  EXPECT_EQ(who->master_port, 23456);
  const auto newer = identify(with(pod, {{"WORLD_SIZE", "16"}, {"PET_NNODES", "2"}, {"PET_NODE_RANK", "1"}}));
  EXPECT_EQ(newer->world, 2);
  EXPECT_FALSE(identify(with(pod, {{"RANK", "0"}, {"WORLD_SIZE", "1"}})));
  EXPECT_NE(refusal(with(pod, {{"RANK", "2"}})).find("RANK"), std::string::npos);
  EXPECT_EQ(identify(with(with(pod, torchrun), {{"PET_NNODES", "4"}}))->how, "torchrun");
}

TEST(Identity, TwoThatDisagreeAreBothNamed) {
  const Variables both = with(torchrun, mpirun);
  const std::string message = refusal(both);
  EXPECT_NE(message.find("torchrun says rank 3 of 8"), std::string::npos) << message;
  EXPECT_NE(message.find("mpirun says rank 1 of 2"), std::string::npos) << message;
  EXPECT_EQ(identify(with(both, {{"PRUN_LAUNCHER", "mpirun"}}))->rank, 1);
  EXPECT_NE(refusal(with(both, {{"PRUN_LAUNCHER", "srun"}})).find("not set"), std::string::npos);
  EXPECT_NE(refusal(with(both, {{"PRUN_LAUNCHER", "pbs"}})).find("'pbs'"), std::string::npos);
}

TEST(Identity, TwoThatAgreeAreFine) {
  const Variables same =
      with(mpirun, {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}});
  EXPECT_EQ(identify(same)->rank, 1);
}

TEST(Identity, BadNumbersNameTheirVariable) {
  const std::pair<Variables, const char*> cases[] = {
      {with(torchrun, {{"RANK", "8"}}), "RANK"},
      {with(torchrun, {{"RANK", "-1"}}), "RANK"},
      {with(torchrun, {{"RANK", "1x"}}), "RANK"},
      {with(torchrun, {{"WORLD_SIZE", ""}}), "WORLD_SIZE"},
      {with(torchrun, {{"WORLD_SIZE", "99999999999999"}}), "WORLD_SIZE"},
      {with(torchrun, {{"LOCAL_RANK", "2"}}), "LOCAL_RANK"},
      {with(torchrun, {{"LOCAL_WORLD_SIZE", "9"}}), "LOCAL_WORLD_SIZE"},
      {with(torchrun, {{"MASTER_PORT", "70000"}}), "MASTER_PORT"},
      {with(srun, {{"SLURM_LOCALID", "3"}}), "SLURM_LOCALID"},
      {with(srun, {{"SLURM_STEP_TASKS_PER_NODE", "2(x"}}), "SLURM_STEP_TASKS_PER_NODE"},
      {with(srun, {{"SLURM_STEP_NODELIST", "gpu[9"}}), "SLURM_STEP_NODELIST"},
      {with(mpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "0"}}), "OMPI_COMM_WORLD_LOCAL_SIZE"},
      {{{"PRUN_RANK", "0"}}, "PRUN_WORLD"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "1"}}, "LOCAL_WORLD_SIZE"},
  };
  for (const auto& [variables, name] : cases)
    EXPECT_NE(refusal(variables).find("environment variable " + std::string(name)), std::string::npos)
        << name << ": " << refusal(variables);
}

TEST(SlurmList, FirstHost) {
  const std::pair<const char*, const char*> cases[] = {{"n1", "n1"},
                                                       {"n1,n2", "n1"},
                                                       {"n[1-4]", "n1"},
                                                       {"n[007,9]", "n007"},
                                                       {"rack[2-3]n[05-08],x", "rack2n05"},
                                                       {"a.b-c_d", "a.b-c_d"}};
  for (const auto& [list, host] : cases) EXPECT_EQ(first_slurm_host(list, "L"), host);
  for (const char* bad : {"", ",", "n[", "n[]", "n[-3]", "n[x]", "n 1", "n;1", "n]"})
    EXPECT_THROW(first_slurm_host(bad, "L"), Error) << bad;
}

TEST(SlurmList, TasksOfNode) {
  EXPECT_EQ(slurm_tasks_of_node("4(x2),3", 0, "L"), 4);
  EXPECT_EQ(slurm_tasks_of_node("4(x2),3", 1, "L"), 4);
  EXPECT_EQ(slurm_tasks_of_node("4(x2),3", 2, "L"), 3);
  EXPECT_EQ(slurm_tasks_of_node("8", 0, "L"), 8);
  EXPECT_THROW(slurm_tasks_of_node("4(x2),3", 3, "L"), Error);
  for (const char* bad : {"", "x", "0", "4(x0)", "4(x2", "4,", "-4"})
    EXPECT_THROW(slurm_tasks_of_node(bad, 5, "L"), Error) << bad;
}

}  // namespace
}  // namespace prun::identity_test
