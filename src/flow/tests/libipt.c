/* Prints what Intel's reference block decoder makes of a raw trace and raw code sections.
 *
 *   libipt list TRACE [ADDRESS CODE]...     a line "IP COUNT" for each block, "gap" where it
 *                                           lost the path
 *   libipt step TRACE [ADDRESS CODE]...     a line "IP" for each instruction of the instruction
 *                                           decoder, "gap" where it lost the path
 *   libipt count TRACE [ADDRESS CODE]...    how much, and how long it took
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <intel-pt.h>

struct section {
	uint64_t start, size;
	const char *path;
};

static struct section sections[64];
static int section_count;

static uint8_t *slurp(const char *path, uint64_t *size)
{
	FILE *file = fopen(path, "rb");
	if (!file) {
		perror(path);
		exit(2);
	}
	fseek(file, 0, SEEK_END);
	*size = (uint64_t)ftell(file);
	rewind(file);
	uint8_t *bytes = malloc(*size + 1);
	if (fread(bytes, 1, *size, file) != *size)
		exit(2);
	fclose(file);
	return bytes;
}

static void add_code(struct pt_block_decoder *decoder, struct pt_image *image, struct pt_image_section_cache *cache)
{
	for (int at = 0; at < section_count; at++) {
		const struct section *section = &sections[at];
		int id = pt_iscache_add_file(cache, section->path, 0, section->size, section->start);
		if (id < 0 || pt_image_add_cached(image, cache, id, NULL) < 0)
			exit(2);
	}
	pt_blk_set_image(decoder, image);
}

static void step(struct pt_config *config)
{
	struct pt_version version = pt_library_version();
	if (version.major > 2 || (version.major == 2 && version.minor > 0)) {
		printf("too new\n");
		return;
	}
	struct pt_insn_decoder *decoder = pt_insn_alloc_decoder(config);
	struct pt_image *image = pt_image_alloc("code");
	for (int at = 0; at < section_count; at++) {
		const struct section *section = &sections[at];
		if (pt_image_add_file(image, section->path, 0, section->size, NULL, section->start) < 0)
			exit(2);
	}
	pt_insn_set_image(decoder, image);
	for (;;) {
		int status = pt_insn_sync_forward(decoder);
		while (status >= 0) {
			while (status >= 0 && (status & pts_event_pending)) {
				struct pt_event event;
				status = pt_insn_event(decoder, &event, sizeof(event));
			}
			if (status < 0)
				break;
			if (status & pts_eos) {
				status = -pte_eos;
				break;
			}
			struct pt_insn insn;
			insn.ip = 0;
			status = pt_insn_next(decoder, &insn, sizeof(insn));
			if (status >= 0 || insn.ip)
				printf("%" PRIx64 "\n", insn.ip);
		}
		if (status == -pte_eos)
			break;
		printf("gap\n");
		uint64_t offset = 0;
		pt_insn_get_offset(decoder, &offset);
		fprintf(stderr, "gap at %" PRIx64 ": %s\n", offset, pt_errstr(pt_errcode(status)));
	}
	pt_insn_free_decoder(decoder);
	pt_image_free(image);
}

static void decode(struct pt_config *config, int list)
{
	uint64_t insns = 0, blocks = 0, gaps = 0;
	struct timespec from, to;
	struct pt_block_decoder *decoder = pt_blk_alloc_decoder(config);
	struct pt_image *image = pt_image_alloc("code");
	struct pt_image_section_cache *cache = pt_iscache_alloc(NULL);
	/* Without a limit it maps, and decodes, each section afresh whenever it needs it. */
	pt_iscache_set_limit(cache, (uint64_t)1 << 30);
	add_code(decoder, image, cache);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
	for (;;) {
		int status = pt_blk_sync_forward(decoder);
		while (status >= 0) {
			while (status & pts_event_pending) {
				struct pt_event event;
				status = pt_blk_event(decoder, &event, sizeof(event));
				if (status < 0)
					break;
			}
			if (status < 0)
				break;
			struct pt_block block;
			block.ninsn = 0;
			status = pt_blk_next(decoder, &block, sizeof(block));
			insns += block.ninsn;
			blocks += block.ninsn > 0;
			if (list && block.ninsn)
				printf("%" PRIx64 " %u\n", block.ip, block.ninsn);
			/* It would go on in straight code; that is a guess. */
			if (status >= 0 && (status & pts_eos))
				status = -pte_eos;
		}
		if (status == -pte_eos)
			break;
		gaps++;
		if (list)
			printf("gap\n");
		uint64_t offset = 0;
		pt_blk_get_offset(decoder, &offset);
		fprintf(stderr, "gap at %" PRIx64 ": %s\n", offset, pt_errstr(pt_errcode(status)));
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
	double seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
	if (!list)
		printf("instructions %" PRIu64 " blocks %" PRIu64 " gaps %" PRIu64 " seconds %.6f\n", insns, blocks, gaps, seconds);
	pt_blk_free_decoder(decoder);
	pt_image_free(image);
	pt_iscache_free(cache);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	struct pt_config config;
	uint64_t size;
	pt_config_init(&config);
	config.begin = slurp(argv[2], &size);
	config.end = config.begin + size;
	for (int at = 3; at + 1 < argc && section_count < 64; at += 2) {
		struct section *section = &sections[section_count++];
		section->start = strtoull(argv[at], NULL, 16);
		section->path = argv[at + 1];
		free(slurp(section->path, &section->size));
	}
	if (strcmp(argv[1], "step") == 0)
		step(&config);
	else
		decode(&config, strcmp(argv[1], "list") == 0);
	return 0;
}
