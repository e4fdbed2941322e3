// The program of each rank in the launcher tests: joins the rendezvous, exchanges keys and prints its result.
#include <cstdio>
#include <exception>
#include <string>

#include <hookline/hookline.hpp>

int main(int argc, char** argv) {
  try {
    const hookline::Rendezvous job =
        hookline::rendezvous(argc > 1 ? argv[1] : "env://", std::nullopt, std::nullopt, std::chrono::seconds(60));
    const int rank = job.rank;
    const int world_size = job.world_size;
    hookline::PrefixStore mine("test", job.store);
    mine.set("from/" + std::to_string(rank), std::to_string(rank * rank));
    for (int peer = 0; peer < world_size; ++peer) {
      const std::string value = mine.get("from/" + std::to_string(peer));
      if (value != std::to_string(peer * peer))
        throw hookline::Mismatch("peer " + std::to_string(peer) + " said " + value);
    }
    mine.barrier("met", world_size, std::chrono::seconds(60));
    std::printf("rank %d of %d, local %d, through %s\n", rank, world_size, job.local_rank,
                job.store->describe().c_str());
    mine.barrier("left", world_size, std::chrono::seconds(60));
    // Rank 0 may serve the store, so it exits last.
    if (mine.add("gone", 1) == world_size) mine.set("all gone", "");
    if (rank == 0) mine.wait({"all gone"});
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
